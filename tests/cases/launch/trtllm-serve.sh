#!/bin/bash
trtllm-serve Qwen/Qwen3-8B --host 127.0.0.1 --port 8000 --max_batch_size 64 --max_num_tokens 8192
