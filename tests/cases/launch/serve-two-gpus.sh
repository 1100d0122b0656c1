#!/bin/bash
# two servers, a GPU each
CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8001 &
CUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8002 &
wait
