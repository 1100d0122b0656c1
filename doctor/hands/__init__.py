"""The worker that touches the machine for `live.py`, in a process of its own.

Anything here may hang (a dead mount, a driver that does not answer) or be killed, so it runs in a
child that can be abandoned. Only the standard library is imported, and the package works under the
name `hands` too: the child starts without site-packages (`python -I -S`) in about 10 ms.

Every operation is a function of JSON arguments that returns JSON; it never decides anything.
"""

VERSIONS = {
    "allreduce": 1,
    "cgroup": 1,
    "clock": 1,
    "cuda": 1,
    "device_nodes": 1,
    "distributions": 2,
    "environ": 1,
    "find": 1,
    "find_text": 1,
    "gguf": 1,
    "hub": 1,
    "identity": 1,
    "interfaces": 1,
    "kernel_log": 1,
    "libraries": 2,
    "library_marks": 1,
    "limits": 1,
    "links": 1,
    "list": 1,
    "loader_cache": 1,
    "model_files": 1,
    "mounts": 1,
    "nvml": 1,
    "owned_libraries": 1,
    "own_name": 1,
    "pci": 1,
    "processes": 1,
    "read": 1,
    "real": 1,
    "run": 1,
    "self": 1,
    "space": 1,
    "stat": 1,
    "triton_repository": 1,
    "trt_folder": 1,
    "vllm_arguments": 1,
    "vllm_digest": 1,
    "which": 1,
}
"""The form of what each operation returns; a snapshot of another form is not read."""
