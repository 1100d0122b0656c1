"""Files of models: fetched again or converted beside the folder, then put in their place.

The work is done by the libraries of the engine's own environment, in a child process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from infer_doctor.fixing import asides
from infer_doctor.fixing.files import Refused, real, require_replaceable
from infer_doctor.fixing.journal import Journal
from infer_doctor.fixing.steps import Step
from infer_doctor.frozen import frozen
from infer_doctor.model import ConvertWeights, Fetch
from infer_doctor.models.hub import OFFLINE

FETCH_S = 6 * 3600
"""Seconds for a download: 140 GB at 10 MB/s take four hours."""

CONVERT_S = 3600

DOWNLOAD = """
import sys
from huggingface_hub import hf_hub_download
repository, revision, folder, *names = sys.argv[1:]
for name in names:
    hf_hub_download(
        repository, name, revision=revision or None, local_dir=folder, force_download=True
    )
"""
"""force_download: else it copies the broken file of its cache."""

CACHED = """
import json, sys
from huggingface_hub import try_to_load_from_cache
repository, revision, *names = sys.argv[1:]
rows = [try_to_load_from_cache(repository, name, revision=revision or None) for name in names]
print(json.dumps([row if isinstance(row, str) else None for row in rows]))
"""

CONVERT = """
import json, os, sys
import torch
from safetensors.torch import save_file
source, target, *names = sys.argv[1:]
index, total = {}, 0
for name in names:
    weights = torch.load(os.path.join(source, name), map_location="cpu", weights_only=True, mmap=True)
    weights = {key: value.clone().contiguous() for key, value in weights.items()}
    made = name.replace("pytorch_model", "model").removesuffix(".bin") + ".safetensors"
    save_file(weights, os.path.join(target, made), metadata={"format": "pt"})
    index.update(dict.fromkeys(weights, made))
    total += sum(value.numel() * value.element_size() for value in weights.values())
    del weights
if len(names) > 1:
    with open(os.path.join(target, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, file, indent=2)
"""
"""weights_only: nothing of the file is executed (pytorch.org/docs, torch.load)."""

ALWAYS = ("config.json", "params.json", "tokenizer_config.json")
"""One of them tells where the snapshot lies."""

SAFE_NAME = re.compile(r"(?!.*\.\.)[\w.@-][\w./@-]*")


def _run(python: str, code: str, arguments: Sequence[str], limit_s: float) -> str:
    """Standard output of a child; raises Refused with the last line of its error."""
    try:
        ended = subprocess.run(
            [python, "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name not in OFFLINE},
        )
    except OSError as error:
        raise Refused(f"{python}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{python}: no end after {limit_s:,.0f} s") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or ["no message"]
        raise Refused(f"{python}: {said[-1]}")
    return ended.stdout


def _part(journal: Journal, folder: str) -> str:
    """A folder on the same file system for what is being made."""
    part = os.path.join(folder, f".infer-doctor-{journal.id}.part")
    journal.write({"event": "keeping", "path": part})
    shutil.rmtree(part, ignore_errors=True)
    os.mkdir(part)
    return part


@frozen
class Fetched:
    """Files of a repository again; `places` are where they lie, links of the cache resolved."""

    action: Fetch
    places: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"fetch {', '.join(self.action.files)} of {self.action.repository}"

    @classmethod
    def prepared(cls, action: Fetch) -> Fetched:
        if not all(map(SAFE_NAME.fullmatch, (action.repository, *action.files))):
            raise Refused(f"{action.repository}: a name that is none")
        if action.folder is not None:
            found = [os.path.join(action.folder, name) for name in action.files]
        else:
            words = (action.repository, action.revision or "", *action.files, *ALWAYS)
            rows = json.loads(_run(action.python, CACHED, words, 60))
            snapshot = next((os.path.dirname(row) for row in reversed(rows) if row), None)
            if snapshot is None:
                raise Refused(f"{action.repository}: not in the local cache any more")
            # what is not there yet becomes a file beside the links, which the library takes too
            found = [
                os.path.realpath(row) if row else os.path.join(snapshot, name)
                for row, name in zip(rows, action.files, strict=False)
            ]
        places = tuple(map(real, found))
        for place in places:
            require_replaceable(place, 0)
        return cls(action=action, places=places)

    def steps(self, journal: Journal) -> list[Step]:
        action = self.action
        part = _part(journal, action.folder or os.path.dirname(self.places[0]))
        words = (action.repository, action.revision or "", part, *action.files)
        try:
            _run(action.python, DOWNLOAD, words, FETCH_S)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        rows = zip(action.files, self.places, strict=True)
        return [
            asides.prepared(place, os.path.join(part, name), f"fetched {place}")
            for name, place in rows
        ]


@frozen
class Converted:
    """Weights of a folder as safetensors beside them."""

    action: ConvertWeights

    @property
    def text(self) -> str:
        return f"convert {', '.join(self.action.files)} in {self.action.folder}"

    @classmethod
    def prepared(cls, action: ConvertWeights) -> Converted:
        for name in action.files:
            if not os.path.isfile(os.path.join(action.folder, name)):
                raise Refused(f"{action.folder}/{name}: is not there")
        size = sum(os.path.getsize(os.path.join(action.folder, name)) for name in action.files)
        require_replaceable(os.path.join(real(action.folder), "model.safetensors"), size)
        return cls(action=action)

    def steps(self, journal: Journal) -> list[Step]:
        folder = os.path.realpath(self.action.folder)
        part = _part(journal, folder)
        try:
            _run(self.action.python, CONVERT, (folder, part, *self.action.files), CONVERT_S)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return [
            asides.prepared(
                os.path.join(folder, name), os.path.join(part, name), f"write {folder}/{name}"
            )
            for name in sorted(os.listdir(part))
        ]
