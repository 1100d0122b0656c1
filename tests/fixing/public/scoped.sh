#!/bin/bash

# risers with one lane
export NCCL_P2P_DISABLE=1
export VLLM_USE_V1=1
export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:$LD_LIBRARY_PATH

# environment
source /srv/llm/env/bin/activate

echo "Starting (4096) ..."
echo "- MemoryMax: 90%"

systemd-run --user --scope -p MemoryMax=90% \
    python3 -m vllm.entrypoints.openai.api_server \
    --model Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8 \
    --tensor-parallel-size 8 \
    --max-num-seqs 32 \
    --swap-space 1 \
    --trust-remote-code \
    --port 8000
