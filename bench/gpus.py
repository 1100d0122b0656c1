"""`infer-doctor check` with GPUs, beside `nvidia-smi -q` where there is one.

On a machine without a GPU the library that plays two H200 is used, with what NVML took there.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from measure import DOCTOR, ROOT, head, medians, row

sys.path.insert(0, str(ROOT / "tests/rigs"))


def main() -> None:
    """One row with persistence mode, one with a start that takes a second."""
    head()
    smi = shutil.which("nvidia-smi")
    if smi and Path("/dev/nvidiactl").exists():
        this, rival = medians([DOCTOR, "check"], [smi, "-q"], runs=11)
        row("check, real GPUs", this, rival, "at most 1.5 s")
        return
    import nvml_library

    machine = json.loads((ROOT / "tests/captures/h200-x2/nvml.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        played = {"LD_LIBRARY_PATH": str(nvml_library.build(machine, Path(folder)))}
        (this,) = medians([DOCTOR, "check"], runs=11, variables=played)
        row("check, two H200 played", this, None, "at most 1.5 s")
        slow = {**played, "FAKE_NVML": "nvmlInitWithFlags=slow"}
        (this,) = medians([DOCTOR, "check"], runs=3, variables=slow)
        row("check, NVML takes a second to start", this, None, "at most 3 s more")


if __name__ == "__main__":
    main()
