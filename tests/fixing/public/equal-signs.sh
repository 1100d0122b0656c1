# one engine
run_engine() {
    echo "HF_HOME: $HF_HOME"
    vllm serve \
        Qwen/Qwen3-8B \
        --host="127.0.0.1" \
        --port=11434 \
        --swap-space="4" \
        --enable-reasoning \
        --reasoning-parser="deepseek_r1" \
        --dtype="bfloat16" \
        2>>"$LOG" &    # background
    PID=$!
}

run_engine