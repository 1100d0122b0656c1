"""Many snapshots are read and judged as each would be alone."""

from __future__ import annotations

import gzip
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster
import jsonschema
import pytest

from infer_doctor.cli import run
from infer_doctor.cluster.reading import Reader, read_nodes
from infer_doctor.examine import Examination
from infer_doctor.host import Host
from infer_doctor.model import CheckResult
from infer_doctor.redact import Redactor
from infer_doctor.registry import load
from infer_doctor.snapshot import BadSnapshot, read

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
CASES = sorted(path for path in cluster.CASES.glob("*/snapshot.json"))


def captures(host: Host) -> dict[str, object]:
    return {k: (c.operation, c.value, c.error, c.version) for k, c in host.captures.items()}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_pieces_give_what_the_whole_gives(path: Path) -> None:
    text = path.read_text()
    reader = Reader()
    for _ in range(2):  # the second time all pieces are known
        assert captures(reader.read(text).host) == captures(read(text).host)


def test_another_layout_is_read_too() -> None:
    text = json.dumps(cluster.node(1))
    assert captures(Reader().read(text).host) == captures(read(text).host)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"duration_ms": 1.5', '"duration_ms": NaN'),
        ('"duration_ms": 1.5', '"duration_ms": 1.5,'),
        ('"duration_ms": 1.5', '"duration_ms": "1.5"'),
        ('"operation": "limits"', '"operation": "unheard"'),
        ('"operation": "limits",', ""),
        ('"schema_version": 1', '"schema_version": 2'),
        ('"captures": [', '"captures": [1,'),
    ],
)
def test_what_is_broken_is_refused_in_the_same_words(old: str, new: str) -> None:
    text = json.dumps(cluster.node(1), indent=1) + "\n"
    assert old in text
    broken = text.replace(old, new, 1)
    with pytest.raises(BadSnapshot) as alone:
        read(broken)
    reader = Reader()
    reader.read(text)
    with pytest.raises(BadSnapshot) as many:
        reader.read(broken)
    assert str(many.value) == str(alone.value)


def untimed(rows: list[CheckResult]) -> list[CheckResult]:
    def named(row: CheckResult) -> CheckResult:
        findings = tuple(replace(f, subject="host") for f in row.findings)
        return replace(row, subject="host", duration_ms=0, findings=findings)

    return [named(row) for row in rows if not row.check.startswith("cluster-")]


def test_each_node_is_judged_as_if_it_were_alone(tmp_path: Path) -> None:
    """What is shared between nodes changes no result, whatever differs between them."""
    registry = load()
    nodes = [cluster.node(i, cluster.document(path.parent.name)) for i, path in enumerate(CASES)]
    nodes += [cluster.node(9), cluster.node(10), cluster.node(11)]
    cluster.value(nodes[-1], "environ")["variables"]["LD_LIBRARY_PATH"] = "/nowhere"
    cluster.value(nodes[-2], "identity")["kernel"] = "4.4.0"
    cluster.rows(nodes[-3], "read")[2].update(value={"text": 5})
    paths = cluster.write(tmp_path, nodes)
    launch = ["vllm", "serve", "/models/m", "-tp", "4"]
    together = Examination.of(registry, cluster=read_nodes(paths)[0], command=launch)
    results = together.run(registry.checks.values())
    for number, path in enumerate(paths):
        alone = Examination.of(registry, snapshot=path, command=launch)
        expected = untimed(alone.run(registry.checks.values()))
        name = f"node-{number:04d}"
        assert untimed([row for row in results if row.subject == name]) == expected
        facts = {kind.__name__: fact for kind, fact in alone.subjects[0].facts.items()}
        mine = {k.__name__: fact for k, fact in together.subjects[number].facts.items()}
        assert mine["Identity"] == facts["Identity"]


def untimed_rows(value: Any) -> Any:
    rows = value if isinstance(value, list) else []
    return [{k: v for k, v in row.items() if k != "duration_ms"} for row in rows] or value


class TestCommand:
    def nodes(self, folder: Path, count: int = 4) -> list[str]:
        made = [cluster.node(i) for i in range(count)]
        cluster.value(made[2], "nvml")["driver"] = "570.86.10"
        return cluster.write(folder, made)

    def test_a_folder_and_a_list_are_the_same(self, tmp_path: Path, capsys: Any) -> None:
        paths = self.nodes(tmp_path)
        of_list = cluster.findings_of(paths, capsys)
        assert cluster.findings_of([str(tmp_path)], capsys) == of_list
        (found,) = of_list[1]
        assert (
            found["message"] == "the driver is 570.86.10 on node-0002; 580.159.04 on 3 other nodes"
        )

    def test_text_names_the_odd_one_once(self, tmp_path: Path, capsys: Any) -> None:
        self.nodes(tmp_path, 30)
        run(["check", "--snapshot", str(tmp_path)])
        text = capsys.readouterr().out
        (place,) = [i for i, line in enumerate(text.splitlines()) if "[cluster-driver" in line]
        assert (
            "570.86.10 on node-0002; 580.159.04 on 29 other nodes" in text.splitlines()[place - 1]
        )
        assert len(text.splitlines()) < 150
        assert all(len(line) <= 80 for line in text.splitlines() if "pip install" not in line)

    def test_json_keeps_all(self, tmp_path: Path, capsys: Any) -> None:
        self.nodes(tmp_path)
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        report = json.loads(capsys.readouterr().out)
        assert set(report["facts"]) == {"cluster", *(f"node-{i:04d}" for i in range(4))}
        rows = {(row["check"], row["subject"]) for row in report["results"]}
        own = [id for id in load().checks if not id.startswith("cluster-")]
        assert len(rows) == len(report["results"])
        assert {(id, f"node-{i:04d}") for id in own for i in range(4)} <= rows
        hosts = [report["facts"][f"node-{i:04d}"]["Identity"]["hostname"] for i in range(4)]
        assert hosts == [f"<host:{i:010x}>" for i in range(4)]

    def test_json_in_parts_is_one_document(self, tmp_path: Path, capsys: Any) -> None:
        """A thousand nodes are written row by row; the text is as the whole would be."""
        self.nodes(tmp_path, 12)
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        text = capsys.readouterr().out
        report = json.loads(text)
        assert text == json.dumps(report, indent=2) + "\n"
        jsonschema.validate(report, json.loads(SCHEMA.read_text()))
        run(["check", "--snapshot", str(tmp_path), "--format", "json", "-o", str(tmp_path / "r")])
        written = json.loads((tmp_path / "r").read_text())
        for key in ("results", "facts", "fixes", "counts", "target", "primary"):
            assert untimed_rows(written[key]) == untimed_rows(report[key])

    def test_a_folder_without_snapshots(self, tmp_path: Path, capsys: Any) -> None:
        assert run(["check", "--snapshot", str(tmp_path)]) == 2
        assert "has no snapshot" in capsys.readouterr().err

    def test_a_broken_file_is_a_node_of_which_nothing_is_known(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        paths = self.nodes(tmp_path, 5)
        whole = Path(paths[1]).read_text()
        Path(paths[1]).write_text(whole[: len(whole) // 3])
        Path(paths[3]).write_bytes(b"")
        words = ["--select", "cluster-*", "--format", "json"]
        assert run(["check", "--snapshot", str(tmp_path), *words]) == 3
        report = json.loads(capsys.readouterr().out)
        rows = {row["check"]: row for row in report["results"] if row["subject"] == "cluster"}
        assert "node-0001: its snapshot cannot be read" in rows["cluster-node-silent"]["reason"]
        assert "node-0003.json: is empty" in rows["cluster-node-silent"]["reason"]
        (finding,) = rows["cluster-driver-differs"]["findings"]
        assert "570.86.10 on node-0002; 580.159.04 on node-0000 and node-0004" in finding["message"]
        row = rows["cluster-master-differs"]
        assert (row["outcome"], "node-0001" in row["reason"]) == ("blocked", True)

    def test_only_broken_files(self, tmp_path: Path, capsys: Any) -> None:
        for path in self.nodes(tmp_path):
            Path(path).write_text('{"kind": "infer-doctor-snapshot", "schema_version": 1')
        assert run(["check", "--snapshot", str(tmp_path)]) == 2
        assert "node-0000.json: it is not valid JSON" in capsys.readouterr().err

    def test_other_json_of_a_folder_is_left_out_and_named(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        self.nodes(tmp_path)
        (tmp_path / "package.json").write_text('{"name": "x"}')
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        said = capsys.readouterr()
        assert set(json.loads(said.out)["facts"]) == {
            "cluster",
            *(f"node-{i:04d}" for i in range(4)),
        }
        assert "package.json: is no snapshot; left out" in said.err

    @pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
    def test_packed_snapshots(self, tmp_path: Path, capsys: Any, pack: Any) -> None:
        paths = self.nodes(tmp_path)
        plain = cluster.findings_of(paths, capsys)
        suffix = ".gz" if pack is gzip.compress else ".xz"
        for path in map(Path, paths):
            path.with_name(path.name + suffix).write_bytes(pack(path.read_bytes()))
            path.unlink()
        assert cluster.findings_of([str(tmp_path)], capsys) == plain
        packed = paths[2] + suffix
        assert run(["check", "--snapshot", packed, "--select", "driver-*"]) == 1
        Path(packed).write_bytes(Path(packed).read_bytes()[:-500])
        assert run(["check", "--snapshot", packed]) == 2
        assert "cannot be unpacked" in capsys.readouterr().err

    def test_two_snapshots_of_one_machine_are_one_node(self, tmp_path: Path, capsys: Any) -> None:
        paths = self.nodes(tmp_path, 6)
        later = json.loads(Path(paths[0]).read_text())
        later["created_at"] = "2099-01-01T00:00:00Z"
        cluster.value(later, "nvml")["driver"] = "590.1.2"
        (tmp_path / "later.json").write_text(json.dumps(later, indent=1) + "\n")
        _, found = cluster.findings_of([str(tmp_path), "--select", "cluster-driver-*"], capsys)
        assert "is 590.1.2 on later" in "".join(row["message"] for row in found)
        run(["check", "--snapshot", str(tmp_path), "--select", "cluster-*"])
        line = "node-0000: the same machine as later, seen no later; left out"
        assert line in capsys.readouterr().err

    def test_a_machine_that_was_restarted_is_one_node(self, tmp_path: Path, capsys: Any) -> None:
        """Its kernel runs anew, so the mark is another; a name that two have by mistake is of one run."""
        paths = self.nodes(tmp_path)
        again = json.loads(Path(paths[0]).read_text())
        again["options"]["machine"] = "f" * 12
        (tmp_path / "same-name.json").write_text(json.dumps(again, indent=1) + "\n")
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        said = capsys.readouterr()
        assert "left out" not in said.err
        assert "same-name" in json.loads(said.out)["facts"]
        again["created_at"] = "2099-01-01T00:00:00Z"
        (tmp_path / "same-name.json").write_text(json.dumps(again, indent=1) + "\n")
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        said = capsys.readouterr()
        assert "node-0000: the same host name as same-name, seen " in said.err
        assert "so before a restart; left out" in said.err
        assert "node-0000" not in json.loads(said.out)["facts"]
        assert "node-0001: taken " in said.err
        assert "before the newest snapshot: of an earlier run" in said.err

    def test_a_host_name_that_is_no_text_is_read(self, tmp_path: Path, capsys: Any) -> None:
        paths = self.nodes(tmp_path)
        broken = json.loads(Path(paths[0]).read_text())
        cluster.value(broken, "identity")["hostname"] = ["x"]
        Path(paths[0]).write_text(json.dumps(broken, indent=1) + "\n")
        run(["check", "--snapshot", str(tmp_path), "--format", "json"])
        said = capsys.readouterr()
        assert "internal fault" not in said.err
        assert "node-0000" in json.loads(said.out)["facts"]

    def test_the_same_snapshot_twice_is_one_machine(self, tmp_path: Path, capsys: Any) -> None:
        paths = self.nodes(tmp_path)
        copy = tmp_path / "copy.json"
        copy.write_text(Path(paths[0]).read_text())
        run(["check", "--snapshot", paths[0], str(copy), "--format", "json"])
        report = json.loads(capsys.readouterr().out)
        assert set(report["facts"]) == {"host"}


class TestKeys:
    def redactor(self, name: str, key: str | None) -> Redactor:
        node = cluster.document()
        cluster.value(node, "identity")["hostname"] = name
        host = read(json.dumps(node)).host
        return Redactor(host.captures.values(), key=key)

    def test_masks_of_one_key_are_equal_in_all_files(self) -> None:
        first, second = (self.redactor(f"gpu-0{i}.example", "k") for i in (1, 2))
        assert first.value("gpu-01.example") == self.redactor("gpu-01.example", "k").value(
            "gpu-01.example"
        )
        assert first.value("gpu-01.example") != second.value("gpu-02.example")
        assert first.key_mark == second.key_mark

    def test_another_key_gives_other_masks(self) -> None:
        first, second = (self.redactor("gpu-01.example", key) for key in ("k", "l"))
        assert first.value("gpu-01.example") != second.value("gpu-01.example")
        assert first.key_mark != second.key_mark

    def test_without_a_key_masks_are_numbered(self) -> None:
        assert self.redactor("gpu-01.example", None).value("gpu-01.example") == "<host:1>"

    def test_a_subnet_is_seen_through_the_masks(self) -> None:
        first, second = (self.redactor(f"gpu-0{i}.example", "k") for i in (1, 2))
        masks = [
            made.capture(
                replace(
                    next(iter(read(json.dumps(cluster.document())).host.captures.values())),
                    operation="interfaces",
                    value={"interfaces": [{"addresses": [{"address": a, "network": "10.7.1.0"}]}]},
                )
            ).value
            for made, a in ((first, "10.7.1.4"), (second, "10.7.1.5"))
        ]
        rows = [mask["interfaces"][0]["addresses"][0] for mask in masks if mask]
        assert rows[0]["network"] == rows[1]["network"] != "10.7.1.0"
        assert rows[0]["address"] != rows[1]["address"]
        assert rows[0]["address"].split(".")[0] == rows[1]["address"].split(".")[0]
