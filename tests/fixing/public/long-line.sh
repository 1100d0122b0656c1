# by hand
docker run -it --name srv0 --rm --gpus='"device=0,1"' --ulimit memlock=-1 \
                 -v $(pwd):/workspace -p 127.0.0.1:8000:8000 \
                 -e NCCL_P2P_DISABLE=1 -e VLLM_USE_V1=1 \
                 vllm/vllm-openai:v0.27.0 \
                 --model /workspace/models/ours \
                 --tool-call-parser hermes \
                 --enable-auto-tool-choice \
                 --tensor_parallel_size 2 \
                 --swap-space 4 \
                 --max_model_len 2048
