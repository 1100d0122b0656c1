#!/bin/bash
docker run -d --name vllm --restart unless-stopped \
  --gpus '"device=0,1"' --shm-size=8g \
  -v /srv/hf:/root/.cache/huggingface \
  -e HF_TOKEN \
  -p 127.0.0.1:8000:8000 \
  vllm/vllm-openai:v0.10.2 \
  --model Qwen/Qwen2.5-32B-Instruct \
  --tensor-parallel-size 2
