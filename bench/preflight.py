"""`infer-doctor preflight -- /bin/true` over `/bin/true`, beside what the engine's own start costs.

INFER_DOCTOR_TEST_ENGINE_FIXED names the folder of a real vLLM; the rival is `import torch` there,
with which every start of that engine begins. Without it there is no rival.
"""

import os

from measure import DOCTOR, head, medians, row

RUNS = 11


def main() -> None:
    """Rows: the doctor's own environment, and the engine's."""
    head()
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE_FIXED")
    words = [["/bin/true"], [DOCTOR, "preflight", "--", "/bin/true"]]
    if folder:
        python = f"{folder}/bin/python"
        words.append([DOCTOR, "preflight", "--python", python, "--", "/bin/true"])
        words.append([python, "-c", "import torch"])
    plain, *others = medians(*words, runs=RUNS)
    rival = others.pop() - plain if folder else None
    for command, taken in zip(words[1:], others, strict=False):
        named = " ".join(command[1:3]) if len(command) > 4 else "preflight"
        row(f"{named} -- true", taken - plain, rival, "at most 0.4 s, less than import torch")


if __name__ == "__main__":
    main()
