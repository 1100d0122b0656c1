#!/usr/bin/env bash
# each in a window
tmux new-session -d -s llm
for port in 8000 8001; do   # two
  vllm serve Qwen/Qwen3-4B \
    --port "$port" --swap-space=4 \
    --gpu-memory-utilization .45 &   # half each
done
wait
