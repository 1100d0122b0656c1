"""How long the report takes when NVML hangs and when the cache lies on a dead mount."""

import json
import sys
import tempfile
from pathlib import Path

from measure import DOCTOR, ROOT, head, row, seconds

sys.path.insert(0, str(ROOT / "tests/rigs"))


def main() -> None:
    """Beside the time limit of 20 s."""
    import nvml_library
    from dead_mount import dead_mount, usable

    head()
    machine = json.loads((ROOT / "tests/captures/h200-x2/nvml.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = {"LD_LIBRARY_PATH": str(nvml_library.build(machine, folder / "lib"))}
        for plan in ("nvmlInitWithFlags", "nvmlDeviceGetUUID@1", "constructor"):
            taken = seconds([DOCTOR, "check"], {**library, "FAKE_NVML": f"{plan}=hang"})
            row(f"check, {plan} hangs", taken, None, "at most 20 s")
        if not usable():
            return
        (folder / "dead").mkdir()
        with dead_mount(folder / "dead") as dead:
            taken = seconds(
                [DOCTOR, "check"], {"HF_HOME": f"{dead}/hf", "PATH": f"{dead}:/usr/bin"}
            )
            row("check, cache and PATH on a dead mount", taken, None, "at most 20 s")


if __name__ == "__main__":
    main()
