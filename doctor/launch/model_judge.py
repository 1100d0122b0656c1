"""What the checks of a model's files share: whose files they are, what may be downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise, fetch_again
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Confidence, Fix
from infer_doctor.models import hub

MANY = 4
"""Files that are named in a message; the others are counted."""


def named(files: Sequence[str]) -> str:
    """The first files, and how many more there are."""
    more = len(files) - MANY
    return ", ".join(files[:MANY]) + (f" and {more} more" if more > 0 else "")


def require_own(files: ModelFiles) -> None:
    """Files of this machine say nothing of those that another will read."""
    if files.elsewhere:
        raise Unavailable(
            f"the files of {files.model} on the machine that will run it are not known"
        )


def require_local(files: ModelFiles) -> None:
    """What is not here is not judged."""
    require_own(files)
    if files.origin == "named":
        raise Unavailable(f"{files.model} is not on this machine")


def offline_by(launch: Launch, environ: Environ | None) -> str | None:
    """The variable that forbids downloads."""
    return hub.offline(of_engine(launch, environ, *hub.OFFLINE))


def require_final(files: ModelFiles, launch: Launch, environ: Environ | None) -> None:
    """What a copy in the cache lacks is downloaded at the start, unless that is forbidden."""
    if files.origin == "cache" and offline_by(launch, environ) is None:
        raise NotApplicable("what the cache lacks is downloaded at the start")


def download(
    files: ModelFiles, names: Sequence[str], interpreter: Interpreter | None
) -> tuple[Fix, ...]:
    """Get files of a cached model again; where a folder is from is not known."""
    if files.origin != "cache":
        return (
            advise(
                "fetch-model-files",
                f"Copy {named(names)} to {files.folder} from where the model came",
                "a repository that was cloned with git needs: git lfs pull",
            ),
        )
    by_name = not any("*" in name for name in names)
    python = interpreter.executable if interpreter is not None and by_name else None
    return (fetch_again(files.model, names, python=python, revision=files.revision, folder=None),)


def confidence(config: ModelConfig) -> Confidence:
    """What is read off the catalogue is only likely."""
    return "likely" if isinstance(config, PublishedConfig) else "certain"


def quantization_of(files: ModelFiles | None, config: ModelConfig) -> Mapping[str, Any] | None:
    """How the checkpoint is quantised: --hf-overrides may say it, else its files."""
    own = config.values.get("quantization_config")
    if isinstance(own, Mapping):
        return own
    if isinstance(config, PublishedConfig) and config.quantization_hidden:
        raise Unavailable(config.quantization_hidden)
    return files.quantization if files is not None else None
