"""TensorRT-LLM: pure readers of its engine folders, options and Triton repositories."""
