"""Builds a libnvidia-ml.so.1 that answers what a captured machine answered.

The real nvidia-ml-py loads it when LD_LIBRARY_PATH names its folder. Signatures and structures are
those of NVML's header (https://docs.nvidia.com/deploy/nvml-api/), as nvidia-ml-py declares them.

The environment variable FAKE_NVML changes what functions do: `NAME[@GPU]=ACTION`, several with
commas; NAME may be `constructor`. Actions: hang, crash (SIGSEGV), slow (one second), exit (status
3), noise (prints on standard output and error), or an nvmlReturn_t to return.
FAKE_NVML_HOLDER=PID,BYTES: this process of GPU 0 holds so much of its memory for as long as it lives.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml

Json = Mapping[str, Any]

CODES = {kind.__name__: code for code, kind in pynvml.NVMLError._valClassMapping.items()}
"""Name of nvidia-ml-py's exception, which captures hold, to the nvmlReturn_t behind it."""

NOT_SUPPORTED, INVALID_ARGUMENT, NOT_FOUND = 3, 2, 6

START = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long wide;
struct device { int index; };
struct memory { wide total, free, used; };
struct memory_v2 { unsigned version; wide total, reserved, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; wide used; unsigned gpu_instance, compute_instance; };
struct field { unsigned id, scope; long long timestamp, latency; int type, code; wide value; };
struct fabric { unsigned version; unsigned char cluster[16]; unsigned status, clique;
                unsigned char state; unsigned health; };

/* What FAKE_NVML wants of this function: an error to return, or 0 to go on. */
static int act(const char *name, int gpu) {
    size_t length = strlen(name);
    const char *next, *plan = getenv("FAKE_NVML");
    for (; plan && *plan; plan = next ? next + 1 : NULL) {
        const char *rest = plan + length;
        next = strchr(plan, ',');
        if (strncmp(plan, name, length) != 0) continue;
        if (*rest == '@') {
            char *end;
            if (strtol(rest + 1, &end, 10) != gpu) continue;
            rest = end;
        }
        if (*rest++ != '=') continue;
        if (strncmp(rest, "hang", 4) == 0) for (;;) pause();
        if (strncmp(rest, "crash", 5) == 0) raise(SIGSEGV);
        if (strncmp(rest, "exit", 4) == 0) _exit(3);
        if (strncmp(rest, "slow", 4) == 0) { sleep(1); return 0; }
        if (strncmp(rest, "noise", 5) == 0) {
            printf("NVML: {\"value\": 1}\n"); fflush(stdout);
            fprintf(stderr, "NVML: a warning\n"); return 0;
        }
        return atoi(rest);
    }
    return 0;
}

/* What FAKE_NVML_HOLDER held, once it has ended; 0 while it lives, and for other processes. */
static wide freed(unsigned pid) {
    unsigned holder;
    wide bytes;
    char path[64], state = 'Z';
    const char *plan = getenv("FAKE_NVML_HOLDER");
    if (!plan || sscanf(plan, "%u,%llu", &holder, &bytes) != 2 || (pid && pid != holder)) return 0;
    snprintf(path, sizeof path, "/proc/%u/stat", holder);
    FILE *file = fopen(path, "r");
    if (!file) return bytes;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
    return state == 'Z' ? bytes : 0;
}

__attribute__((constructor)) static void constructor(void) { act("constructor", -1); }

static int text(char *to, unsigned room, const char *from) {
    if (strlen(from) + 1 > room) return 7;
    strcpy(to, from);
    return 0;
}
"""

Body = tuple[str, str, Callable[[Any], str], str]
"""Parameters after the handle, C type of the table, a value as C, statement that gives the value."""


def _quote(value: object) -> str:
    return json.dumps(str(value))


def _numbers(*keys: str) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        rows = [value[key] for key in keys] if keys else list(value)
        return "{" + ", ".join(_quote(x) if isinstance(x, str) else f"{x}u" for x in rows) + "}"

    return write


def _wide(*keys: str) -> Callable[[Any], str]:
    return lambda value: "{" + ", ".join(f"{value[key]}ull" for key in keys) + "}"


STRING: Body = (
    "char *to, unsigned room",
    "char *const",
    _quote,
    "return text(to, room, value[i]);",
)
TEXT: Body = ("char *to", "char *const", _quote, "return text(to, 64, value[i]);")
UNSIGNED: Body = ("unsigned *to", "unsigned", lambda v: f"{v}u", "*to = value[i]; return 0;")
WIDE: Body = ("wide *to", "wide", lambda v: f"{v}ull", "*to = value[i]; return 0;")
PAIR: Body = (
    "unsigned *a, unsigned *b",
    "struct { unsigned a, b; }",
    _numbers(),
    "*a = value[i].a; *b = value[i].b; return 0;",
)
FOUR: Body = (
    "unsigned *a, unsigned *b, unsigned *c, unsigned *d",
    "struct { unsigned a, b, c, d; }",
    _numbers(),
    "*a = value[i].a; *b = value[i].b; *c = value[i].c; *d = value[i].d; return 0;",
)


def _memory(name: str, *keys: str) -> Body:
    """With what the ended holder gave back."""
    statement = (
        "*to = value[i]; if (i == 0) { to->used -= freed(0); to->free += freed(0); } return 0;"
    )
    return (f"struct {name} *to", f"struct {name}", _wide(*keys), statement)


def _structure(name: str, write: Callable[[Any], str]) -> Body:
    return (f"struct {name} *to", f"struct {name}", write, "*to = value[i]; return 0;")


GETTERS: dict[str, tuple[str, Body]] = {
    "Name": ("Name", STRING),
    "UUID": ("UUID", STRING),
    "GspFirmwareVersion": ("GspFirmwareVersion", TEXT),
    **{
        name: (name, UNSIGNED)
        for name in (
            "ComputeMode",
            "PersistenceMode",
            "EnforcedPowerLimit",
            "CurrPcieLinkGeneration",
            "CurrPcieLinkWidth",
            "MaxPcieLinkGeneration",
            "MaxPcieLinkWidth",
            "RetiredPagesPendingStatus",
            "Architecture",
            "VirtualizationMode",
            "MinorNumber",
            "PowerState",
            "DisplayActive",
        )
    },
    "CurrentClocksThrottleReasons": ("CurrentClocksThrottleReasons", WIDE),
    "CudaComputeCapability": ("CudaComputeCapability", PAIR),
    "MigMode": ("MigMode", PAIR),
    "EccMode": ("EccMode", PAIR),
    "RemappedRows": ("RemappedRows", FOUR),
    "UtilizationRates": ("UtilizationRates", _structure("utilization", _numbers("gpu", "memory"))),
    "MemoryInfo": ("MemoryInfo", _memory("memory", "total", "free", "used")),
    "MemoryInfo_v2": (
        "MemoryInfo_v2",
        _memory("memory_v2", "version", "total", "reserved", "free", "used"),
    ),
    "PciInfo_v3": (
        "PciInfo",
        _structure(
            "pci",
            _numbers(
                "busIdLegacy",
                "domain",
                "bus",
                "device",
                "pciDeviceId",
                "pciSubSystemId",
                "busId",
            ),
        ),
    ),
    "GpuFabricInfoV": (
        "fabric",
        (
            "struct fabric *to",
            "struct { unsigned state, status, health; }",
            _numbers("state", "status", "healthMask"),
            "if (to->version >> 24 < 2) return 25;\n"
            "    to->state = value[i].state; to->status = value[i].status;\n"
            "    to->health = value[i].health; return 0;",
        ),
    ),
}
"""nvmlDeviceGet... -> the key of a capture and how the value is handed over."""

ECC = {
    "ecc_corrected_volatile": (0, 0),
    "ecc_corrected_aggregate": (0, 1),
    "ecc_uncorrected_volatile": (1, 0),
    "ecc_uncorrected_aggregate": (1, 1),
}
"""Key of a capture -> nvmlMemoryErrorType_t, nvmlEccCounterType_t."""


def _code(value: Any) -> int:
    """The nvmlReturn_t of a captured answer; what was not captured is not supported."""
    if value is None:
        return NOT_SUPPORTED
    if isinstance(value, dict) and "error" in value:
        return CODES[value["error"].partition(":")[0]]
    return 0


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    return f"static {kind} {name}[] = {{{', '.join(rows)}}};"


def _getter(symbol: str, key: str, body: Body, gpus: list[Json]) -> str:
    parameters, kind, write, give = body
    answers = [gpu.get(key) for gpu in gpus]
    codes = [_code(answer) for answer in answers]
    nothing = '""' if kind.startswith("char") else "{0}" if kind.startswith("struct") else "0"
    values = [
        nothing if code else write(answer) for code, answer in zip(codes, answers, strict=True)
    ]
    return f"""
int nvmlDeviceGet{symbol}(struct device *handle, {parameters}) {{
    {_table("const int", "code", map(str, codes))}
    {_table("const " + kind, "value", values)}
    int i = handle->index, wanted = act("nvmlDeviceGet{symbol}", i);
    if (wanted || code[i]) return wanted ? wanted : code[i];
    {give}
}}"""


def _system(machine: Json) -> str:
    functions = [
        f"""
int {name}(char *to, unsigned room) {{
    int wanted = act("{name}", -1);
    return wanted ? wanted : text(to, room, {_quote(machine[key])});
}}"""
        for name, key in (
            ("nvmlSystemGetDriverVersion", "driver"),
            ("nvmlSystemGetNVMLVersion", "nvml"),
        )
    ]
    gpus = machine["gpus"]
    handles = _table("const int", "code", (str(_code(gpu)) for gpu in gpus))
    devices = _table("struct device", "devices", (f"{{{i}}}" for i in range(len(gpus))))
    return f"""{"".join(functions)}
int nvmlInitWithFlags(unsigned flags) {{ (void)flags; return act("nvmlInitWithFlags", -1); }}
int nvmlShutdown(void) {{ return act("nvmlShutdown", -1); }}
const char *nvmlErrorString(int code) {{ (void)code; return "an error of the library"; }}
int nvmlSystemGetCudaDriverVersion_v2(int *to) {{
    *to = {machine["cuda_driver"]};
    return act("nvmlSystemGetCudaDriverVersion_v2", -1);
}}
int nvmlDeviceGetCount_v2(unsigned *to) {{
    *to = {len(gpus)};
    return act("nvmlDeviceGetCount_v2", -1);
}}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **to) {{
    {handles}
    {devices}
    int wanted = act("nvmlDeviceGetHandleByIndex_v2", index);
    if (index >= {len(gpus)}) return {INVALID_ARGUMENT};
    *to = &devices[index];
    return wanted ? wanted : code[index];
}}
"""


def _counters(gpus: list[Json]) -> str:
    rows = []
    for index, gpu in enumerate(gpus):
        for key, (kind, counter) in ECC.items():
            answer, code = gpu.get(key), _code(gpu.get(key))
            rows.append(f"{{{index}, {kind}, {counter}, {code}, {0 if code else answer}ull}}")
    return f"""
int nvmlDeviceGetTotalEccErrors(struct device *handle, int kind, int counter, wide *to) {{
    static const struct {{ int gpu, kind, counter, code; wide value; }} rows[] = {{{", ".join(rows)}}};
    int wanted = act("nvmlDeviceGetTotalEccErrors", handle->index);
    if (wanted) return wanted;
    for (unsigned n = 0; n < sizeof rows / sizeof *rows; n++)
        if (rows[n].gpu == handle->index && rows[n].kind == kind && rows[n].counter == counter) {{
            *to = rows[n].value;
            return rows[n].code;
        }}
    return {INVALID_ARGUMENT};
}}"""


def _links(gpus: list[Json]) -> str:
    rows = []
    for index, gpu in enumerate(gpus):
        for link, answer in enumerate(gpu.get("nvlink", ())):
            code = _code(answer)
            rows.append(f"{{{index}, {link}, {code}, {0 if code else answer}}}")
    return f"""
int nvmlDeviceGetNvLinkState(struct device *handle, unsigned link, unsigned *to) {{
    static const struct {{ int gpu; unsigned link; int code; unsigned value; }} rows[] =
        {{{", ".join(rows) or "{-1}"}}};
    int wanted = act("nvmlDeviceGetNvLinkState", handle->index);
    if (wanted) return wanted;
    for (unsigned n = 0; n < sizeof rows / sizeof *rows; n++)
        if (rows[n].gpu == handle->index && rows[n].link == link) {{
            *to = rows[n].value;
            return rows[n].code;
        }}
    return {INVALID_ARGUMENT};
}}"""


def _sensors(gpus: list[Json]) -> str:
    """Temperature, the slowdown threshold and the one field value that is asked for."""
    functions = [
        f"""
int nvmlDeviceGet{symbol}(struct device *handle, int kind, unsigned *to) {{
    {_table("const int", "code", (str(_code(gpu.get(key))) for gpu in gpus))}
    {_table("const unsigned", "value", (_number(gpu.get(key)) for gpu in gpus))}
    int i = handle->index, wanted = act("nvmlDeviceGet{symbol}", i);
    if (kind != {kind}) return {INVALID_ARGUMENT};
    *to = value[i];
    return wanted ? wanted : code[i];
}}"""
        for symbol, key, kind in (
            ("Temperature", "Temperature", 0),
            ("TemperatureThreshold", "TemperatureSlowdown", 1),
        )
    ]
    key = "recovery_action"
    return f"""{"".join(functions)}
int nvmlDeviceGetFieldValues(struct device *handle, int count, struct field *to) {{
    {_table("const int", "code", (str(_code(gpu.get(key))) for gpu in gpus))}
    {_table("const unsigned", "value", (_number(gpu.get(key)) for gpu in gpus))}
    int i = handle->index, wanted = act("nvmlDeviceGetFieldValues", i);
    for (int n = 0; n < count; n++) {{
        to[n].code = to[n].id == 230 ? code[i] : {NOT_SUPPORTED};
        to[n].type = 1;
        to[n].value = value[i];
    }}
    return wanted;
}}"""


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else "0"


def _instances(gpus: list[Json]) -> str:
    """MIG devices are handles after those of the GPUs; NVML may leave places empty, here the first."""
    counts = [len(gpu.get("mig") or ()) for gpu in gpus]
    before = [len(gpus) + sum(counts[:index]) for index in range(len(gpus))]
    return f"""
static const unsigned instances[] = {{{", ".join(map(str, counts))}}};
int nvmlDeviceGetMaxMigDeviceCount(struct device *handle, unsigned *to) {{
    *to = instances[handle->index] + 1;
    return act("nvmlDeviceGetMaxMigDeviceCount", handle->index);
}}
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *handle, unsigned place, struct device **to) {{
    {_table("const unsigned", "before", map(str, before))}
    {_table("struct device", "devices", (f"{{{n}}}" for n in range(len(gpus) + sum(counts) + 1)))}
    int i = handle->index, wanted = act("nvmlDeviceGetMigDeviceHandleByIndex", i);
    if (wanted) return wanted;
    if (place == 0 || place > instances[i]) return {NOT_FOUND};
    *to = &devices[before[i] + place - 1];
    return 0;
}}"""


def _processes(kind: str, gpus: list[Json]) -> str:
    """The caller asks twice: without room for the number, then with room for the rows."""
    name, rows, codes = f"{kind}RunningProcesses", [], []
    for index, gpu in enumerate(gpus):
        answer = gpu.get(name, [])
        codes.append(str(_code(answer)))
        for row in answer if isinstance(answer, list) else ():
            used = "~0ull" if row["usedGpuMemory"] is None else f"{row['usedGpuMemory']}ull"
            instances = [
                f"{row.get(key, 0xFFFFFFFF)}u" for key in ("gpuInstanceId", "computeInstanceId")
            ]
            rows.append(f"{{{index}, {{{row['pid']}u, {used}, {', '.join(instances)}}}}}")
    return f"""
int nvmlDeviceGet{name}_v3(struct device *handle, unsigned *count, struct process *to) {{
    static const struct {{ int gpu; struct process process; }} rows[] = {{{", ".join(rows) or "{-1}"}}};
    {_table("const int", "code", codes)}
    int wanted = act("nvmlDeviceGet{name}_v3", handle->index);
    unsigned room = *count;
    if (wanted || code[handle->index]) return wanted ? wanted : code[handle->index];
    *count = 0;
    for (unsigned n = 0; n < sizeof rows / sizeof *rows; n++)
        if (rows[n].gpu == handle->index && !freed(rows[n].process.pid)) {{
            if (to && *count < room) to[*count] = rows[n].process;
            ++*count;
        }}
    return *count > room ? 7 : 0;
}}"""


def source(machine: Json, without: frozenset[str] = frozenset()) -> str:
    """The C source; functions named in `without` are missing, as in the library of an old driver."""
    gpus: list[Json] = list(machine["gpus"])
    readable = [gpu if "error" not in gpu else {} for gpu in gpus]
    instances = [instance for gpu in readable for instance in gpu.get("mig") or ()]
    everything = [*readable, *instances]
    functions = [
        _system(machine),
        *(_getter(symbol, key, body, everything) for symbol, (key, body) in GETTERS.items()),
        _counters(readable),
        _links(readable),
        _sensors(readable),
        _instances(readable),
        _processes("Compute", readable),
        _processes("Graphics", readable),
    ]
    renames = "".join(f"#define {name} static_{name}\n" for name in sorted(without))
    return START + renames + "\n".join(functions) + "\n"


def build(machine: Json, folder: Path, without: frozenset[str] = frozenset()) -> Path:
    """Compile the library into `folder` and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    code = folder / "nvml.c"
    code.write_text(source(machine, without))
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-missing-braces"]
    command += ["-o", str(folder / "libnvidia-ml.so.1"), str(code)]
    subprocess.run(command, check=True, timeout=120)
    return folder
