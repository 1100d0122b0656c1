"""Files of every kind as TARGET: one clear line on stderr and exit 2, or the facts they hold."""

import json
import os
from pathlib import Path

import pytest

from infer_doctor.cli import run
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuMemory, Gpus
from infer_doctor.targets import NoTarget, facts_of

CAPTURES = Path(__file__).parent.parent / "captures"
XML = (CAPTURES / "h200/nvidia-smi-q.xml").read_text()
TEXT = (CAPTURES / "h200/nvidia-smi-q.txt").read_text()
TABLE = (CAPTURES / "h200/nvidia-smi.txt").read_text()

BOMB = """<?xml version="1.0"?>
<!DOCTYPE nvidia_smi_log [
 <!ENTITY a "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">
 <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
 <!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
 <!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">
]>
<nvidia_smi_log><driver_version>&d;</driver_version></nvidia_smi_log>
"""

REFUSED = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\r\n", "is empty"),
    "mark only": (b"\xef\xbb\xbf\n", "is empty"),
    "binary": (b"\x7fELF\x02\x01\x00\x00", "is binary"),
    "other": (b"hello\n", "is no file that infer-doctor knows"),
    "not JSON": (b'{"schema_version": 1,', "it is not valid JSON"),
    "JSON": (b"{}", "no snapshot"),
    "bomb": (BOMB.encode(), "declares entities"),
    "subset": (
        XML.replace('"nvsmi_device_v13.dtd"', '"nvsmi_device_v13.dtd" []').encode(),
        "declares entities",
    ),
    "unknown entity": (XML.replace("NVIDIA H200", "&h;").encode(), "declares entities"),
    "not XML": (XML.replace("</gpu>", "").encode(), "is no valid XML"),
    "two documents": ((XML + XML).encode(), "holds several outputs of nvidia-smi -q -x"),
    "two logs": ((TEXT + TEXT).encode(), "holds several outputs of nvidia-smi -q"),
    "two tables": ((TABLE + TABLE).encode(), "holds several outputs of nvidia-smi"),
    "no driver": (
        b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "nvidia-smi failed there (NVIDIA-SMI has failed because",
    ),
    "mismatch": (
        b"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.1\n",
        "(Failed to initialize NVML: Driver/library version mismatch)",
    ),
    "strange row": (TABLE.replace("NVIDIA H200                    On", "?").encode(), "not known"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, words = REFUSED[kind]
    path = tmp_path / "target"
    path.write_bytes(data)
    assert run(["check", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"infer-doctor: {path}: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sparse, pipe = tmp_path / "sparse", tmp_path / "pipe"
    with sparse.open("wb") as file:
        file.truncate(1 << 30)
    os.mkfifo(pipe)
    for path, words in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "is a folder"),
        (sparse, "1,073,741,824 bytes are too many"),
        (pipe, "is a pipe that nobody writes into"),
    ):
        assert run(["check", str(path)]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_large_garbage(tmp_path: Path) -> None:
    """A few MB of lines that look like something end in a clear sentence."""
    path = tmp_path / "large"
    for line in ("==============NVSMI LOG==============\n", "| NVIDIA-SMI \n", "a : b\n", "<gpu>"):
        path.write_text(line + "    key : value\n" * 100_000)
        with pytest.raises(NoTarget):
            facts_of(str(path))


@pytest.mark.parametrize("form", ["nvidia-smi-q.txt", "nvidia-smi-q.xml", "nvidia-smi.txt"])
def test_what_stands_around(form: str, tmp_path: Path) -> None:
    """Line ends, marks, colours, prompts, quotations and bytes that are not UTF-8 change nothing."""
    text = (CAPTURES / "h200-x2" / form).read_text()
    prompt = "user@host:~$ nvidia-smi\nINFO 11-30 12:06:06 [__init__.py:1] platform cuda\n"
    coloured = text.replace("NVIDIA H200", "\x1b[1;32mNVIDIA H200\x1b[0m")
    forms = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "cr cr lf": text.replace("\n", "\r\r\n").encode(),
        "utf-8 mark": text.encode("utf-8-sig"),
        "utf-16": text.encode("utf-16"),
        "colours": coloured.encode(),
        "around": f"{prompt}```\n{text}\n```\n{prompt}".encode(),
        "latin-1": b"caf\xe9\n" + text.encode(),
    }
    if form.endswith("txt"):
        forms["quoted"] = "".join(f"> {line}" for line in text.splitlines(True)).encode()
        stamp = "2026-11-30T02:59:59.000000000Z "
        forms["docker logs -t"] = "".join(f"{stamp}{x}" for x in text.splitlines(True)).encode()
    path = tmp_path / "target"
    path.write_text(text)
    expected = facts_of(str(path))
    for name, data in forms.items():
        path.write_bytes(data)
        found = facts_of(str(path))
        assert set(found) == set(expected), name
        for kind in expected:
            if kind is not Driver:  # its line moves
                assert found[kind] == expected[kind], name


def test_empty_lines_between_all_lines() -> None:
    """Then an empty line at the end proves nothing: the processes may be cut off."""
    from infer_doctor.facts.gpu import GpuProcesses
    from infer_doctor.targets import facts_in

    text = (CAPTURES / "foreign/q-535-4090-processes.txt").read_text().replace("\n", "\n\n")
    found = facts_in(text, "file")
    memory = found[GpuMemory]
    assert isinstance(memory, GpuMemory)
    assert len(memory.rows) == 2
    processes = found[GpuProcesses]
    assert isinstance(processes, GpuProcesses)
    assert processes.gaps


def test_deep_xml(tmp_path: Path) -> None:
    path = tmp_path / "deep.xml"
    path.write_text(f"<nvidia_smi_log>{'<a>' * 100_000}{'</a>' * 100_000}</nvidia_smi_log>")
    with pytest.raises(NoTarget, match="is cut off: it names neither"):
        facts_of(str(path))


def test_targets_and_snapshot_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(CAPTURES / "h200/nvidia-smi-q.txt")
    assert run(["check", file, "--snapshot", file]) == 2
    assert "not both" in capsys.readouterr().err


def test_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(CAPTURES / "h200/nvidia-smi-q.txt"), str(CAPTURES / "h200-x2/nvidia-smi-q.xml")]
    assert run(["check", *files, files[0], "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["facts"]) == set(files)
    counts = [len(report["facts"][file][Gpus.__name__]["gpus"]) for file in files]
    assert counts == [1, 2]
