"""Whether the installed engine and its transformers know the model: read off their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from infer_doctor.catalog import architectures as catalog
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Distributions, Interpreter, package_folder
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.models import config as read
from infer_doctor.registry import probe
from infer_doctor.versions import release

REGISTRY = "model_executor/models/registry.py"
OWN_CONFIGS = "transformers_utils/config.py"
TYPES = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")
"""Where CONFIG_MAPPING_NAMES stands: the first since transformers 5, the second always."""

CLASSES = "models/auto/modeling_auto.py"

SUFFIXES = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "ChatModel",
    "LMHeadModel",
    "ForTextEncoding",
    "EmbeddingModel",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForAudioClassification",
    "ForImageClassification",
    "ForVideoClassification",
    "ClassificationModel",
    "ForRewardModeling",
    "RewardModel",
    "Model",
)
"""_SUFFIX_TO_DEFAULTS of vllm/config/model.py: FooForSequenceClassification runs as the
FooForCausalLM that is known."""

NAME = re.compile(r"\w{1,80}", re.ASCII)

ARCHITECTURES = 8
"""Names of a config that are looked up; published ones have one or two."""


@frozen
class ModelSupport:
    """What the source of an engine, or the catalogue of a version, says of this model.

    `basis` is "installed source", "catalogue 0.32.0"; `exact` whether a name that is not there is
    surely not supported.
    """

    architectures: tuple[str, ...]
    known: tuple[str, ...]
    """Those that the engine has itself, also as another task of a known one."""
    removed: Mapping[str, str]
    """Architecture -> the last version that had it."""
    plugins: Mapping[str, str]
    """Architecture -> the plugin's address."""
    in_transformers: tuple[str, ...]
    """Those that transformers has a class for: vLLM tries it when it has none itself."""
    model_type: str | None
    type_known: bool | None
    """None when transformers was not looked at."""
    basis: str
    exact: bool
    source: str
    transformers: str | None
    """The version of transformers."""
    bases: tuple[str, ...] | None = None
    """What the engine's class of the first architecture inherits from, as it is written there."""
    class_source: str | None = None


@probe
def model_support(
    host: Host,
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    engine: EngineFact | None,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> ModelSupport:
    """The installed engine for a launch here, else the catalogue by the version asked for."""
    if options.engine != "vllm":
        raise Unavailable(f"which models {options.engine} knows is not catalogued")
    config = known_config(config, files, published)
    written = read.architectures(config.values)[:ARCHITECTURES]
    names = tuple(name for name in written if NAME.fullmatch(name))
    kind = read.model_type(config.values)
    if launch.machine == "local" and engine is not None and engine.name == "vllm":
        if not engine.package or interpreter is None:
            raise Unavailable("the engine's source was not read")
        return _installed(host, engine, names, kind, interpreter, distributions)
    return _catalogued(options.version, names, kind)


def _installed(
    host: Host,
    engine: EngineFact,
    names: tuple[str, ...],
    kind: str | None,
    interpreter: Interpreter,
    distributions: Distributions | None,
) -> ModelSupport:
    source = f"{engine.package}/{REGISTRY}"
    rows = _rows(host, source, {other for name in names for other in relatives(name)})
    own = {name for name, row in rows.items() if len(row) == 2}
    values = {name: row[0] for name, row in rows.items() if len(row) == 1}
    where, bases = _bases(host, engine.package, rows.get(names[0]) if names else None)
    folder = package_folder(host, interpreter, distributions, "transformers")
    found = distributions.by_name.get("transformers") if distributions is not None else None
    return ModelSupport(
        architectures=names,
        known=tuple(name for name in names if own.intersection(relatives(name))),
        removed={n: values[n] for n in names if values.get(n, "")[:1].isdigit()},
        plugins={n: values[n] for n in names if "://" in values.get(n, "")},
        in_transformers=tuple(n for n in names if folder and _has_class(host, folder, n)),
        model_type=kind,
        type_known=_knows_type(host, engine.package, folder, kind),
        basis="installed source",
        exact=True,
        source=source,
        transformers=found.version if found else None,
        bases=bases,
        class_source=where,
    )


def relatives(name: str) -> tuple[str, ...]:
    """The architecture and those of the same model for another task."""
    base = next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), None)
    return (name,) if base is None else (name, *(base + end for end in SUFFIXES))


def _bases(
    host: Host, package: str, row: tuple[str, ...] | None
) -> tuple[str | None, tuple[str, ...] | None]:
    """The file of a class and the names in its head; None when it is not where it is looked for."""
    if row is None or len(row) != 2 or not all(NAME.fullmatch(word) for word in row):
        return None, None
    path = f"{package}/model_executor/models/{row[0]}.py"
    try:
        pattern = rf"\nclass {row[1]}\([^)]*\):"
        found = host.ask("find_text", path=path, pattern=pattern, limit=1)["matches"]
    except Unavailable as error:
        if error.code in ("ENOENT", "ENOTDIR"):
            return None, None
        raise
    if not found:
        return None, None
    words = found[0].partition("(")[2].rpartition(")")[0].split(",")
    return path, tuple(word.strip() for word in words if word.strip())


def _rows(host: Host, path: str, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Architecture -> module and class, or last version or address alone, as the registry says."""
    if not names:
        return {}
    one = r'"[^"\n]+"'
    pattern = rf'\n    "(?:{"|".join(sorted(names))})": *\(?\s*{one}(?:,\s*{one})?'
    matches = host.ask("find_text", path=path, pattern=pattern, limit=200)["matches"]
    found: dict[str, tuple[str, ...]] = {}
    for match in matches:
        name, *values = re.findall(r'"([^"]+)"', match)
        # the value of the next row may have matched when a row has one value
        found.setdefault(name, tuple(values[: 2 if "(" in match else 1]))
    return found


def _has_class(host: Host, folder: str, name: str) -> bool:
    pattern = rf'"{name}"'
    found = host.ask("find_text", path=f"{folder}/{CLASSES}", pattern=pattern, limit=1)
    return bool(found["matches"])


def _knows_type(host: Host, package: str, folder: str | None, kind: str | None) -> bool | None:
    """Whether AutoConfig finds a class for this model_type; vLLM registers some of its own."""
    if kind is None:
        return None
    word = re.escape(kind)
    if not word.isascii():
        return None
    places = [(f"{package}/{OWN_CONFIGS}", rf'[\s"]{word}"?(?:=|: ?)"?\w*Config')]
    if folder is None:
        return None
    places += [(f"{folder}/{file}", rf'"{word}"(?:,|:)\s*"\w+"') for file in TYPES]
    for path, pattern in places:
        try:
            if host.ask("find_text", path=path, pattern=pattern, limit=1)["matches"]:
                return True
        except Unavailable as error:
            if error.code not in ("ENOENT", "ENOTDIR"):
                raise
    return False


def _catalogued(version: str | None, names: tuple[str, ...], kind: str | None) -> ModelSupport:
    known = catalog.known()
    asked = release(version, 3)
    if not asked:
        raise Unavailable("the version of vLLM that will run is not known")
    newest = release(catalog.VERSION, 3)
    had = tuple(name for name in names if known.intersection(relatives(name)))
    removed = {
        name: last
        for name, last in catalog.removed().items()
        if name in names and asked > release(last, 3)
    }
    if asked < newest and had:
        raise Unavailable(f"since which version {had[0]} is known is not catalogued")
    if asked < newest and any(name in catalog.removed() for name in names) and not removed:
        had = names
    return ModelSupport(
        architectures=names,
        known=had,
        removed=removed,
        plugins={},
        in_transformers=(),
        model_type=kind,
        type_known=None,
        basis=f"catalogue {catalog.VERSION}",
        exact=asked <= newest,
        source=f"catalogue of vLLM {catalog.VERSION}",
        transformers=None,
    )
