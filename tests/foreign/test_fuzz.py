"""Readers on texts that nobody has seen: facts that hold together, or one clear sentence.

Deterministic and bounded: hypothesis draws the same examples in every run.
"""

from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuCapabilities, GpuEcc, GpuMemory, GpuProcesses, Gpus
from infer_doctor.foreign import collect_env, smi_query, smi_table
from infer_doctor.foreign.text import Unreadable, clean
from infer_doctor.model import Missing
from infer_doctor.targets import facts_in

CAPTURES = Path(__file__).parent.parent / "captures"
TEXTS = [
    path.read_text()
    for path in sorted(
        [
            CAPTURES / "h200-x2/nvidia-smi-q.txt",
            CAPTURES / "h200-x2/nvidia-smi.txt",
            CAPTURES / "h200/vllm-collect-env.txt",
            CAPTURES / "h200/torch-collect-env.txt",
            *CAPTURES.glob("foreign/*.txt"),
            *CAPTURES.glob("foreign/*.xml"),
        ]
    )
]
SCRAPS = (
    *(
        "N/A",
        "[Unknown Error]",
        "ERR!",
        "None",
        "-1 MiB",
        "99999999999 MiB",
        "0x1F",
        "٣ MiB",
        " : ",
    ),
    *("\x1b[31m", "\r", "\ufeff", "\u2028", "é", "\x00", "</gpu>", "<!ENTITY a 'b'>", "&amp;", "|"),
    *("GPU 0: ", "GPU 00000000:00:06.0", "    Processes", "VLLM_X=1", "Attached GPUs : 2", "\n\n"),
)
STEADY = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real output with a few lines lost, doubled or swapped, and scraps in some places."""
    lines = draw(st.sampled_from(TEXTS)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        column = draw(st.integers(0, len(line)))
        action = draw(
            st.sampled_from(["drop", "double", "swap", "scrap", "replace", "cut", "shift"])
        )
        if action == "drop" and len(lines) > 1:
            del lines[place]
        elif action == "double":
            lines.insert(draw(st.integers(0, len(lines))), line)
        elif action == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], line
        elif action == "scrap":
            lines[place] = line[:column] + draw(st.sampled_from(SCRAPS)) + line[column:]
        elif action == "replace":
            lines[place] = line[:column] + draw(st.sampled_from(SCRAPS)) + "\n"
        elif action == "cut":
            lines[place] = line[:column]
        elif action == "shift":
            lines[place] = " " * draw(st.integers(0, 12)) + line.lstrip()
    return "".join(lines)


def read(text: str) -> tuple[Mapping[type, object], str]:
    """The facts, or the words of the refusal."""
    try:
        return facts_in(clean(text), "file"), ""
    except Unreadable as error:
        return {}, str(error)


def hold_together(text: str) -> None:
    """Read the text; whatever comes out must be possible."""
    facts, refusal = read(text)
    assert bool(facts) != bool(refusal)
    assert "\n" not in refusal
    for kind, fact in facts.items():
        if isinstance(fact, Missing):
            assert fact.fact == kind.__name__
            continue
        assert type(fact) is kind
        if isinstance(fact, Driver):
            assert fact.version.replace(".", "").isascii()
            assert fact.version.replace(".", "").isdigit()
        elif isinstance(fact, Gpus):
            assert [gpu.index for gpu in fact.gpus] == list(range(len(fact.gpus)))
            assert all(gpu.name for gpu in fact.gpus)
        elif isinstance(fact, GpuCapabilities):
            assert fact.capabilities
        elif isinstance(fact, GpuMemory):
            assert fact.rows or fact.gaps
            for memory in fact.rows:
                assert 0 <= memory.free <= memory.usable <= memory.total
                assert memory.used >= 0
        elif isinstance(fact, GpuEcc):
            assert fact.rows or fact.gaps
            assert all(row.uncorrected is None or row.uncorrected >= 0 for row in fact.rows)
        elif isinstance(fact, GpuProcesses):
            assert all(row.pid >= 0 for row in fact.processes)


@STEADY
@given(damaged())
def test_damaged_outputs(text: str) -> None:
    hold_together(text)


@STEADY
@given(st.lists(st.sampled_from([*SCRAPS, *"abc:=|+-. \n", smi_query.BANNER, smi_table.HEAD])))
def test_scraps(parts: list[str]) -> None:
    hold_together("".join(parts))


@STEADY
@given(st.text(max_size=300))
def test_any_text_after_a_beginning(text: str) -> None:
    for beginning in (
        f"{smi_query.BANNER}\n",
        "<nvidia_smi_log>",
        f"{smi_table.HEAD}5 Driver Version: 580.1 CUDA Version: 13.0 |\n",
        f"{collect_env.START}\nPyTorch version: 2.9.0\nIs debug build: False\n",
    ):
        hold_together(beginning + text)
        hold_together(f"{beginning}{text}</nvidia_smi_log>\n")
