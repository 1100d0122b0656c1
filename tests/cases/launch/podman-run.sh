podman run --rm --device nvidia.com/gpu=all --ipc=host \
  -v /srv/hf:/root/.cache/huggingface:Z \
  -p 127.0.0.1:8000:8000 \
  docker.io/vllm/vllm-openai:v0.10.2 --model Qwen/Qwen3-4B
