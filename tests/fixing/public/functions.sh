#!/usr/bin/env bash
set -euo pipefail

CONTAINER_NAME="${CONTAINER_NAME:-embed}"
MODEL="${MODEL:-nomic-ai/nomic-embed-text-v2-moe}"

docker rm -f "$CONTAINER_NAME" >/dev/null 2>&1 || true

docker run -d --name "$CONTAINER_NAME" --gpus all \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  --env "HF_TOKEN=${HF_TOKEN:-}" \
  --env "VLLM_USE_V1=1" \
  -p 127.0.0.1:8001:8000 \
  vllm/vllm-openai:v0.27.0 \
  --model "$MODEL" \
  --runner pooling \
  --tensor-parallel-size 2 \
  --swap-space 4

echo "Logs: docker logs -f $CONTAINER_NAME"
