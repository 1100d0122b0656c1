"""What a process was given, as JSON on standard output: run directly and through preflight."""

import json
import os
import resource
import sys
from pathlib import Path


def main() -> None:
    status = dict(
        line.split(":\t")
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that listed the folder
            continue
    state = {
        "environment": Path("/proc/self/environ").read_bytes().decode("latin-1"),
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),
        "descriptors": descriptors,
        "terminal": [os.isatty(number) for number in range(3)],
        "foreground": os.tcgetpgrp(0) == os.getpgrp() if os.isatty(0) else None,
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")},
        "umask": status["Umask"],
        "limits": [
            resource.getrlimit(number) for number in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)
        ],
        "children": Path("/proc/thread-self/children").read_text().split(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "leader": os.getsid(0) == os.getpid(),
        "nice": os.nice(0),
        "score": Path("/proc/self/oom_score_adj").read_text(),
    }
    Path(sys.argv[1]).write_text(json.dumps({**state, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
