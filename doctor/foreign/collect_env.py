"""`vllm collect-env` (with banners since 0.9, flat before) and `python -m torch.utils.collect_env`.

Sources: vllm/collect_env.py (0.6 to 0.33), torch/utils/collect_env.py (2.0 to 2.13). All three
print `Key: value` lines with the same keys; a value that is not known reads "Could not collect",
"N/A" or "No CUDA". What they print is partial by nature: libraries by a list of names, variables
by prefixes and without those whose name hints at a secret. So nothing is concluded from a row that
is not there.
"""

from __future__ import annotations

import re
from itertools import pairwise

from infer_doctor.catalog.cuda import MINIMUM_DRIVER
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine import LOCAL_MARKS, EngineFact
from infer_doctor.facts.environment import normal
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import COMPANIONS, TorchBuild, TorchCompanions, companion
from infer_doctor.foreign.smi import Block, driver_of, gpu_facts, withheld
from infer_doctor.foreign.text import Facts, Unreadable, whole_lines, without_prefix
from infer_doctor.model import Evidence
from infer_doctor.versions import release

START = "Collecting environment information..."
FIRST_KEY, SECOND_KEY = "PyTorch version", "Is debug build"
KEYS = (
    FIRST_KEY,
    SECOND_KEY,
    "CUDA used to build PyTorch",
    "ROCM used to build PyTorch",
    "XPU used to build PyTorch",
    "Is CUDA available",
    "GPU models and configuration",
    "Nvidia driver version",
    "vLLM Version",
)
FIELD = re.compile(rf"({'|'.join(KEYS)}) *: ?(.*)")
GPU = re.compile(r"GPU ([0-9]{1,3}): (\S.*?)(?: \(UUID: [^)]*\))?")
VERSION = re.compile(r"([0-9]+\.[0-9]+[0-9A-Za-z.+_-]*)(?: .*)?")
ENGINE = re.compile(r"([0-9]+\.[0-9]+[0-9A-Za-z.+]*)(?:[ @].*)?")
"""0.26.0; 0.11.2.dev320+g1f2e3d4c5 (git sha: 1f2e3d4c5); before 0.6.3 0.6.2@cb3b2b9ba4...; N/A (dev)"""

CUDA = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}")
ROW = re.compile(r"\[pip3?\] ([A-Za-z0-9._-]{1,80})==([A-Za-z0-9._+!-]{1,80})")
VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
SIDE_EFFECTS = (
    "CUDA_MODULE_LOADING",
    "NCCL_CUMEM_ENABLE",
    "OMP_NUM_THREADS",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "VLLM_WORKER_MULTIPROC_METHOD",
)
"""What importing torch and vLLM sets (vllm/env_override.py, vllm/platforms/, torch/__init__.py): in a
report nobody knows whether the user set it."""

SIDE_MARKS = ("/cv2/../../lib64",)
"""opencv-python puts its own folder before LD_LIBRARY_PATH when it is imported (cv2/__init__.py)."""

LONGEST = 200
"""Characters of a value; keeps the patterns from running long."""

WITHOUT = ("N/A", "None", "Could not collect", "")


def is_collect_env(text: str) -> bool:
    """What all forms print first, or two keys that stand one below the other."""
    return START in text or (FIRST_KEY in text and SECOND_KEY in text)


def read_collect_env(text: str, source: str) -> Facts:
    """Facts of one report; raises Unreadable."""
    lines = whole_lines(text)
    column = _column(lines)
    if column is None:
        raise Unreadable("is cut off: it holds only the beginning of a collect_env report")
    lines = without_prefix(lines, 0, column)
    fields: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, 1):
        match = FIELD.fullmatch(line)
        if match is None:
            continue
        if match[1] in fields:
            raise Unreadable("holds several reports of collect_env; keep one")
        fields[match[1]] = (number, match[2].strip()[:LONGEST])
    facts: dict[type, object] = {}
    facts |= _torch(fields, source)
    facts |= _gpus(lines, fields, source)
    facts |= _driver(fields, facts, source)
    facts |= _engine(fields, source)
    facts |= _companions(lines, source)
    facts |= _environ(lines, fields)
    if not facts:
        raise Unreadable("holds no value of collect_env that could be read; is it cut off?")
    return facts


def _column(lines: list[str]) -> int | None:
    """Where the keys begin: a report may stand behind a prefix of one width."""
    for line, below in pairwise(lines):
        column = line.find(FIRST_KEY)
        if column >= 0 and below.startswith(SECOND_KEY, column):
            return column
    return None


Fields = dict[str, tuple[int, str]]


def _torch(fields: Fields, source: str) -> Facts:
    """`torch.version`: with a torch that has a version "N/A" means that it is built without."""
    version = VERSION.fullmatch(fields.get(FIRST_KEY, (0, ""))[1])
    cuda, hip = (fields.get(f"{name} used to build PyTorch") for name in ("CUDA", "ROCM"))
    if version is None or cuda is None or hip is None:
        return {}
    if not CUDA.fullmatch(cuda[1]) and cuda[1] not in WITHOUT:
        return {}
    xpu = fields.get("XPU used to build PyTorch", (0, "N/A"))[1]
    if "+xpu" in version[1] and xpu in WITHOUT:
        xpu = version[1]
    build = TorchBuild(
        version=version[1],
        cuda=None if cuda[1] in WITHOUT else cuda[1],
        hip=None if hip[1] in WITHOUT else hip[1],
        xpu=None if xpu in WITHOUT else xpu,
        source=source,
    )
    return {TorchBuild: build}


def _driver(fields: Fields, facts: Facts, source: str) -> Facts:
    line, version = fields.get("Nvidia driver version", (0, ""))
    evidence = Evidence(source=source, line=line, excerpt=f"Nvidia driver version: {version}")
    found = driver_of(version, None, evidence)
    torch = facts.get(TorchBuild)
    if not found or not isinstance(torch, TorchBuild) or torch.cuda is None:
        return found
    major = torch.cuda.partition(".")[0]
    least = MINIMUM_DRIVER.get(int(major))
    works = fields.get("Is CUDA available", (0, ""))[1] == "True"
    if works and least is not None and release(version) < release(least):
        return withheld(
            f"torch says that CUDA works here, but driver {version} is older than {least}, which "
            f"CUDA {major} needs: a forward-compatibility library seems to be in use",
            [Driver],
        )
    return found


def _gpus(lines: list[str], fields: Fields, source: str) -> Facts:
    """The rows of `nvidia-smi -L` without UUIDs; MIG devices stand between them."""
    begin, first = fields.get("GPU models and configuration", (0, ""))
    end, _ = fields.get("Nvidia driver version", (0, ""))
    if not begin:
        return {}
    rows = [first, *lines[begin : max(end - 1, begin)]]
    found = [match for row in rows if (match := GPU.fullmatch(row.strip()))]
    if not found:
        return {}
    if end <= begin:
        return withheld("the list of GPUs does not end in this file", [Gpus, GpuCapabilities])
    if [int(match[1]) for match in found] != list(range(len(found))):
        return withheld("the list of GPUs has holes", [Gpus, GpuCapabilities])
    blocks = [Block(index=index, name=match[2]) for index, match in enumerate(found)]
    return gpu_facts(blocks, source)


def _engine(fields: Fields, source: str) -> Facts:
    """The version that vLLM has of itself; what it was built for only where that version says it."""
    line, value = fields.get("vLLM Version", (0, ""))
    version = ENGINE.fullmatch(value)
    if version is None:
        return {}
    words = re.split(r"[.-]", version[1].partition("+")[2])
    builds = (
        build for word in words for mark, build in LOCAL_MARKS.items() if re.fullmatch(mark, word)
    )
    evidence = Evidence(source=source, line=line, excerpt=f"vLLM Version: {value}")
    engine = EngineFact(
        name="vllm",
        version=version[1],
        distribution=None,
        package="",
        build=next(builds, None),
        build_evidence=evidence,
    )
    return {EngineFact: engine}


def _companions(lines: list[str], source: str) -> Facts:
    """torchvision and the like, as far as pip's rows show them; a row alone says no requirement."""
    found: dict[str, set[str]] = {}
    for line in lines:
        match = ROW.fullmatch(line)
        if match is not None and normal(match[1]) in COMPANIONS:
            found.setdefault(normal(match[1]), set()).add(match[2])
    rows = [
        companion(name, versions.pop(), source)
        for name, versions in found.items()
        if len(versions) == 1
    ]
    gaps = ("collect_env lists only some distributions, without what they require",)
    return {TorchCompanions: TorchCompanions(rows=tuple(rows), gaps=gaps)} if rows else {}


def _environ(lines: list[str], fields: Fields) -> Facts:
    """The lines NAME=value at the end of vLLM's report, up to the first that is none."""
    begin, _ = fields.get("vLLM Version", (0, ""))
    found: dict[str, str] = {}
    doubtful: set[str] = set(SIDE_EFFECTS)
    last = ""
    for line in lines[begin:] if begin else ():
        match = VARIABLE.fullmatch(line)
        if match is not None:
            last, value = match[1], match[2]
            if found.setdefault(last, value) != value:
                doubtful.add(last)
        elif last:
            if line.strip():
                doubtful.add(last)  # the rest of a value of several lines, or a mark of a quotation
            break
    variables = {
        name: value
        for name, value in found.items()
        if name not in doubtful and not any(mark in value for mark in SIDE_MARKS)
    }
    gap = "vllm collect-env shows only some environment variables"
    return {Environ: Environ(variables=variables, gaps=(gap,))} if variables else {}
