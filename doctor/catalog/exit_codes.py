"""What the exit code of a container says.

125 to 127 are Docker's own (docs.docker.com/reference/cli/docker/container/run, "Exit status"), 128+n
an end by signal n (signal(7)); what makes an engine end so: the reports and sources named beside.
"""

from __future__ import annotations

from infer_doctor.model import Category

STOPPED = frozenset((0, 130, 143))
"""Ended in order: done, Ctrl-C, SIGTERM as `docker stop` sends it."""

EXIT_CODES: dict[int, tuple[str, Category]] = {
    1: ("the program ended itself with an error", "container"),
    2: (
        "the program does not know one of its arguments, or ended itself with an error",
        "container",
    ),
    125: ("Docker itself could not start it", "container"),
    126: ("the command was found but cannot be executed", "container"),
    127: ("the command is not in the image", "container"),
    132: ("SIGILL: the processor lacks an instruction that the program uses", "arch_no_kernel"),
    134: (
        "SIGABRT: a library gave up (an assertion, or CUDA and NCCL after an error)",
        "container",
    ),
    135: ("SIGBUS: a page of shared memory could not be had, as when /dev/shm is full", "nccl_shm"),
    136: ("SIGFPE: a division by zero in compiled code", "container"),
    137: (
        "SIGKILL: `docker stop` whose grace was over, `docker kill`, or the memory killer of the host",
        "host_ram",
    ),
    139: ("SIGSEGV: compiled code read memory that is not its own", "abi_symbol"),
}


def meaning(code: int) -> tuple[str, Category]:
    """Words and a category for an exit code that is no orderly end."""
    if code in EXIT_CODES:
        return EXIT_CODES[code]
    if 128 < code < 160:
        return f"signal {code - 128}", "container"
    return "the program ended itself with an error", "container"
