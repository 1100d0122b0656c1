"""The arguments of vLLM by version: which there are, how a command line is read, what is wrong."""
