"""`infer-doctor check` beside `vllm collect-env`, on a machine without a GPU.

INFER_DOCTOR_TEST_ENGINE_FIXED names the folder of a real vLLM for the CPU that was repaired as
`check` says; without it there is no rival. The rival runs three times: it needs many seconds.
"""

import os
import statistics

from measure import DOCTOR, head, medians, row, seconds

RIVAL_RUNS = 3


def main() -> None:
    """Two rows: the doctor's own environment, and the one that the rival examines."""
    head()
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE_FIXED")
    rival = None
    words = [[DOCTOR, "check"]]
    if folder:
        words.append([DOCTOR, "check", "--python", f"{folder}/bin/python"])
        collect = [f"{folder}/bin/python", f"{folder}/bin/vllm", "collect-env"]
        seconds(collect)  # warms the caches
        taken = []
        for _ in range(RIVAL_RUNS):
            taken.append(seconds(collect))
            seconds(words[0])
        rival = statistics.median(taken)
    for command, time in zip(words, medians(*words, runs=11), strict=True):
        row(" ".join(["check", *command[2:3]]), time, rival, "at most 0.5 s, 18x")


if __name__ == "__main__":
    main()
