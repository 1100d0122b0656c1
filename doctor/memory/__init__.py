"""The memory plan: what the engine would print after loading, without loading.

All of it is arithmetic on (config.json, safetensors headers, options, memory of the GPU, version).
"""
