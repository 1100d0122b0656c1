"""The model of the launch must be the same on all nodes."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator

from infer_doctor.cluster.compare import Quantity, Read, Reading, Value, advise, judge
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.launch.model import Launch
from infer_doctor.model import Finding, Fix, Missing
from infer_doctor.registry import check

NO_PART = re.compile(r"(?:.*/)?(?:\..*|README\.md|LICENSE.*)")
"""Files that no engine reads."""


@check("cluster-model-differs", severity="error", category="cluster_difference", since="0.3")
def model_differs(nodes: Nodes, launch: Launch) -> Iterator[Finding]:
    """The files of the model are not the same on all nodes.

    ## Why it matters
    Each rank reads its own copy. Another revision, a shard of an interrupted copy or a
    configuration that was edited on one node gives ranks that compute another model: a crash with
    luck, wrong text without.

    ## How it decides
    The model of the launch on each node: the names and sizes of its files, the contents of its
    small JSON files (configuration, index, tokenizer, quantisation) and the tensors that the
    headers of the safetensors files name. The bytes of weights are not read, so that a shard of the
    right size with other numbers is not seen. Notes and licences do not count.

    ## Fix safety
    Manual: files of another machine.
    """

    yield from judge(
        nodes,
        [
            Quantity(name="the model", read=_there, cure=_bring),
            *(Quantity(name=name, read=_file(name), cure=_cure) for name in _names(nodes)),
        ],
        together="files of the model",
    )


def _bring(odd: str, most: str) -> Fix:
    if most == "there":
        return advise("bring-model", f"Copy the model to {odd}, or mount the folder that has it")
    return advise("same-model", f"Give the model by its name or its folder alike on {odd}")


def _cure(odd: str, _: str) -> Fix:
    return advise("same-model", f"Copy the model to {odd} anew, from a node that has the right one")


def _model(node: Node) -> ModelFiles | Missing:
    found: ModelFiles | Missing = node.get(ModelFiles)
    if not isinstance(found, Missing) and found.gaps:
        return Missing(fact="ModelFiles", reason=found.gaps[0], kind="unavailable")
    return found


def _there(node: Node) -> Reading:
    found = _model(node)
    if isinstance(found, Missing):
        return found
    return Value(text="there" if found.origin != "named" else "not there", source=found.title)


def _names(nodes: Nodes) -> list[str]:
    """All files that an engine may read, of all nodes."""
    models = {
        id(found): found for found in (node.fact(ModelFiles) for node in nodes.nodes) if found
    }
    names = {file.name for found in models.values() for file in found.files}
    return sorted(name for name in names if not NO_PART.fullmatch(name))


def _file(name: str) -> Read:
    def read(node: Node) -> Reading:
        found = _model(node)
        if isinstance(found, Missing):
            return found
        if found.origin == "named":
            return Missing(fact="ModelFiles", reason="the model is not there", kind="absent")
        size = found.size_of(name)
        text = "not there" if size is None else f"{size:,} bytes{_content(found, name)}"
        return Value(text=text, source=found.path_of(name))

    return read


def _content(found: ModelFiles, name: str) -> str:
    """A short mark of what is known of the contents, for files of equal size."""
    if name in found.broken:
        return f", {found.broken[name]}"
    known: object = found.documents.get(name)
    if known is None:
        known = [
            [row.name, row.dtype, row.shape, row.size, row.count]
            for row in found.tensors
            if row.file == name
        ] or [
            [row.files, row.tensors, row.total_size, row.lacking]
            for row in found.indexes
            if row.name == name
        ]
    if not known:
        return ""
    text = json.dumps(known, sort_keys=True, default=str)
    return f", contents {zlib.crc32(text.encode('utf-8', 'backslashreplace')):08x}"
