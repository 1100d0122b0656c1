#!/bin/bash
mpirun -n 2 --allow-run-as-root --oversubscribe \
    trtllm-llmapi-launch trtllm-serve meta-llama/Llama-3.1-8B-Instruct \
    --tp_size 2 --host 127.0.0.1 --port 8000
