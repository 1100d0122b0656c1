#!/bin/bash
ARGS=(
  --model Qwen/Qwen3-8B   # chat
  --swap-space 4          # old
  # --enforce-eager
  --port 8000
)
exec python3 -m vllm.entrypoints.openai.api_server "${ARGS[@]}"
