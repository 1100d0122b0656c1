#!/usr/bin/env bash
set -euo pipefail

MODEL=${MODEL:-meta-llama/Llama-3.1-70B-Instruct}
export HF_HOME=/data/huggingface

ARGS=(
  --tensor-parallel-size 4
  --max-model-len 32768      # fits with 80 GB each
  --gpu-memory-utilization 0.90
)

exec vllm serve "$MODEL" "${ARGS[@]}" \
  --host 127.0.0.1 \
  --port 8000
