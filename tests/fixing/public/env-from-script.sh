#!/bin/sh
# POSIX
. ./settings   # names
: "${MODEL:=Qwen/Qwen3-8B}"
VLLM_USE_V1=1 HF_HOME=/hf   nohup vllm serve "$MODEL" --swap-space 4 >"log $(date +%F).txt" 2>&1 &
echo $! > pid   # for later
