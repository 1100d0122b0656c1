"""Builds a libcuda.so.1 that answers what the environment variable FAKE_CUDA says.

`NAME=ACTION`, several with commas; NAME is a function or `constructor`. Actions: hang, crash
(SIGSEGV), exit (status 3), noise (prints on standard output and error), or a CUresult to return.
CUDA_VISIBLE_DEVICES is read as a real H200 showed it (tests/captures/h200-x2/cuinit.txt): an entry
that names no GPU ends the list, no GPU is 100, one that stands twice 101.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int act(const char *name) {
    size_t length = strlen(name);
    const char *next, *plan = getenv("FAKE_CUDA");
    for (; plan && *plan; plan = next ? next + 1 : NULL) {
        const char *rest = plan + length;
        next = strchr(plan, ',');
        if (strncmp(plan, name, length) != 0 || *rest++ != '=') continue;
        if (strncmp(rest, "hang", 4) == 0) for (;;) pause();
        if (strncmp(rest, "crash", 5) == 0) raise(SIGSEGV);
        if (strncmp(rest, "exit", 4) == 0) _exit(3);
        if (strncmp(rest, "noise", 5) == 0) {
            printf("{\"code\": 7}\n"); fflush(stdout);
            fprintf(stderr, "CUDA: a warning\n"); return 0;
        }
        return atoi(rest);
    }
    return 0;
}

__attribute__((constructor)) static void constructor(void) { act("constructor"); }

/* The number of GPUs that are visible, or -1 when one stands twice. */
static int visible(void) {
    int found = 0, seen[GPUS] = {0};
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) return GPUS;
    while (*text) {
        char *end;
        long index = strtol(text, &end, 10);
        if (end == text || index < 0 || index >= GPUS) break;
        if (seen[index]++) return -1;
        found++;
        text = *end == ',' ? end + 1 : end;
    }
    return found;
}

static int started;

int cuInit(unsigned flags) {
    int wanted = act("cuInit"), count = visible();
    (void)flags;
    if (!wanted) wanted = count < 0 ? 101 : count == 0 ? 100 : 0;
    started = wanted == 0;
    return wanted;
}
int cuDriverGetVersion(int *to) { *to = 13000; return act("cuDriverGetVersion"); }
int cuDeviceGetCount(int *to) { *to = visible(); return started ? act("cuDeviceGetCount") : 3; }
"""


def build(folder: Path, gpus: int) -> Path:
    """Compile the library into `folder` and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    code = folder / "cuda.c"
    code.write_text(SOURCE)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-DGPUS={gpus}"]
    command += ["-o", str(folder / "libcuda.so.1"), str(code)]
    subprocess.run(command, check=True, timeout=120)
    return folder
