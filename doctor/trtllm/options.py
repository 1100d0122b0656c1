"""A launch of TensorRT-LLM -> its options by the names of LlmArgs, and what the version refuses.

trtllm-build is argparse (a prefix counts as the option, "-" is not "_"), the others are click (whole
names only). Keys of the extra options file and keywords of LLM(...) are fields of one class;
sections are written as "kv_cache_config.dtype".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.catalog import trtllm_flags as flags
from infer_doctor.catalog.trtllm_releases import Version
from infer_doctor.catalog.trtllm_variables import TRUE_WORDS
from infer_doctor.facts.engine_options import EngineOptions, Option, OptionProblem
from infer_doctor.launch.model import Launch, Unknown, Word
from infer_doctor.trtllm.fields import Fields, nearest

BENCH_COMMANDS = ("throughput", "latency", "build", "prepare-dataset", "iteration")
SERVERS = ("trtllm-serve", "trtllm-serve mm_embedding_serve")
ENTRIES = (*SERVERS, "trtllm-bench", "trtllm-build", "trtllm-eval", "LLM")


BLANK = (
    "a blank word stands at the end: a blank after the backslash ends the command, and the lines below "
    "are commands of their own"
)


class Reader(Fields):
    """Reads one launch; the result is `options`."""

    def options(self) -> EngineOptions:
        launch = self.launch
        if launch.entry == "trtllm-build":
            self._build(launch.words)
        elif launch.entry in SERVERS:
            self._serve(launch.words)
        elif launch.entry in ("trtllm-bench", "trtllm-eval"):
            self._bench(launch.words)
        self._autodeploy()
        for keyword in launch.keywords:
            self.keyword(keyword, None)
        command = dict(self.given)
        for keyword in launch.config:
            self.keyword(keyword, command)
        return EngineOptions(
            engine="tensorrt-llm",
            version=self.written,
            basis=self.basis,
            exact=self.exact,
            entry=launch.entry,
            model=self.model,
            given=self.given,
            problems=tuple(self.problems),
            defaults=_defaults(launch.entry),
            gaps=tuple(self.gaps),
        )

    def _autodeploy(self) -> None:
        """Its own LlmArgs (_torch/auto_deploy/llm_args.py) has transforms, compile_backend, world_size
        and others, and other values of attn_backend; they changed with each release."""
        launch = self.launch
        fields = (*launch.keywords, *launch.config)
        values = [row.value for row in fields if row.name == "backend"]
        if "backend" in self.given:
            values.append(self.given["backend"].value)
        asked = any(isinstance(v, Unknown) or v in flags.AUTODEPLOY for v in values)
        if not asked and "auto_deploy" not in (launch.origin or ""):
            return
        self.foreign = True
        if fields:
            self.gaps.append("the keys that AutoDeploy takes are not in the catalogue")

    def _build(self, words: Sequence[Word]) -> None:
        table = flags.BUILD
        if self.version is None:
            table = {row: names for row, names in table.items() if row >= flags.BUILD_BEFORE}
        known = around(table, self.version)
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            name, equals, value = word.text.partition("=")
            if not name.startswith("--"):
                if word.unknown is not None:
                    self.gaps.append(f"{word.text} may stand for options")
                elif name != "-h":
                    message = f"trtllm-build takes no word {word.text}"
                    self._problem("unknown", word, None, BLANK if _blank(word) else message)
                continue
            whole = _prefixed(name, known)
            values: list[Word] = []
            if equals:
                values = [Word(text=value, place=word.place, unknown=word.unknown)]
            elif whole is None or whole not in flags.BUILD_FLAGS:
                many = whole in flags.BUILD_MANY
                while index < len(words) and not words[index].text.startswith("--"):
                    values.append(words[index])
                    index += 1
                    if not many:
                        break
            if whole is None:
                self._foreign_to_build(word, name, values, known)
                continue
            field = whole.removeprefix("--").replace("max_decoder_seq_len", "max_seq_len")
            self._take(field, name, word, values, self._is_flag(whole))
            if values and values[-1].unknown is None:
                self._judge_build(whole, name, word, values[-1].text)
            if whole == "--checkpoint_dir" and values:
                self.model = self.given.get("checkpoint_dir")

    def _is_flag(self, whole: str) -> bool:
        until = flags.BUILD_FLAGS_BEFORE.get(whole)
        if until is not None:
            return self.version is None or self.version[:2] < until
        return whole in flags.BUILD_FLAGS

    def _foreign_to_build(
        self, word: Word, name: str, values: Sequence[Word], known: frozenset[str]
    ) -> None:
        text = " ".join(value.text for value in values) or None
        if name in flags.BUILD_FOREIGN:
            instead, why = flags.BUILD_FOREIGN[name]
            older = "since" in why or "gone" in why
            plain = instead is not None and name in flags.BUILD_RENAMED
            message = f"trtllm-build of {self.named} has no {name}: {why}"
            if instead is not None:
                message += f" ({instead})"
            self._problem(
                "renamed" if plain else "removed" if older else "unknown",
                word,
                text,
                message,
                successor=instead if plain else None,
                nearest=instead,
            )
            return
        if self.version is not None and any(name in row for row in flags.BUILD.values()):
            self._problem(
                "removed", word, text, f"trtllm-build of {self.named} has no {name}, others have"
            )
            return
        near = name.replace("-", "_").replace("__", "--", 1)
        self._problem(
            "unknown",
            word,
            text,
            f"no trtllm-build that is known has {name}",
            nearest=near if near in known else nearest(name, known),
        )

    def _judge_build(self, whole: str, name: str, word: Word, value: str) -> None:
        choices = flags.BUILD_CHOICES.get(whole)
        if choices is not None and value not in choices:
            self._problem(
                "choice",
                word,
                value,
                f"{name} takes {', '.join(choices)}; {value} is none of them",
                nearest=_meant(value, choices),
            )
        elif whole in flags.BUILD_WHOLE and not _is_whole(value):
            self._problem("type", word, value, f"{name} takes a whole number; {value} is none")

    def _serve(self, words: Sequence[Word]) -> None:
        known = around(flags.SERVE, self.version)
        every = frozenset(name for row in flags.SERVE.values() for name in row)
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            name, equals, value = word.text.partition("=")
            if not name.startswith("-"):
                self._positional(word)
                continue
            values: list[Word] = []
            if equals:
                values = [Word(text=value, place=word.place, unknown=word.unknown)]
            elif name not in flags.SERVE_FLAGS and index < len(words):
                following = words[index].text
                if name in every or not following.startswith("-"):
                    values = [words[index]]
                    index += 1
            if name not in every and name.replace("-", "_").replace("__", "--", 1) in every:
                wanted = name.replace("-", "_").replace("__", "--", 1)
            else:
                wanted = name
            if wanted in flags.SERVE_NAMES or wanted in every:
                field = flags.SERVE_NAMES.get(wanted, wanted.removeprefix("--"))
                self._take(field, name, word, values, wanted in flags.SERVE_FLAGS)
            if self.launch.entry == "trtllm-serve" and name not in ("-h", "--help"):
                self._judge_serve(name, word, values, known, every)

    def _judge_serve(
        self,
        name: str,
        word: Word,
        values: Sequence[Word],
        known: frozenset[str],
        every: frozenset[str],
    ) -> None:
        text = values[0].text if values else None
        if name not in known:
            meant = flags.SERVE_FOREIGN.get(name)
            if meant is None and name.replace("-", "_").replace("__", "--", 1) in known:
                meant = name.replace("-", "_").replace("__", "--", 1)
            near = meant or nearest(name, known)
            plain = near if near is not None and near.startswith("--") else None
            if name in every:
                since = next(v for v, row in sorted(flags.SERVE.items()) if name in row)
                message = (
                    f"trtllm-serve of {self.named} has no {name}: known from "
                    f"{'.'.join(map(str, since))} on"
                )
                self._problem("not-yet", word, text, message, successor=plain)
                return
            message = f"no trtllm-serve that is known has {name}"
            if meant is not None and not meant.startswith("--"):
                message += f": it takes {meant}"
            self._problem("unknown", word, text, message, nearest=plain)
            return
        if values and values[0].unknown is None:
            value = values[0].text
            if name in flags.SERVE_WHOLE and not _is_whole(value):
                self._problem("type", word, value, f"{name} takes a whole number; {value} is none")
            elif name == "--backend":
                self._judge_backend(word, value)

    def _judge_backend(self, word: Word, value: str) -> None:
        early = self.version is not None and self.version[:2] <= flags.ONE_BACKEND_UNTIL
        choices = flags.BACKENDS[:1] if early else flags.BACKENDS
        if value == "tensorrt" and self.version is not None and self.version[:2] == (1, 0):
            message = f"--backend of {self.named} does not know tensorrt: it is trt there"
            self._problem("not-yet", word, value, message, successor="--backend trt")
        if value in choices:
            return
        takes = f"of {self.named} takes pytorch alone" if early else "takes pytorch, tensorrt or "
        takes += " (engines are loaded without it)" if early else "_autodeploy"
        self._problem(
            "choice",
            word,
            value,
            f"--backend {takes}; {value} is none of them" if not early else f"--backend {takes}",
            nearest=None if early else nearest(value, flags.BACKENDS, 0.5),
        )

    def _bench(self, words: Sequence[Word]) -> None:
        """Only what others need: the options of the sub-commands are not in the catalogue."""
        index = 0
        while index < len(words):
            name, equals, value = words[index].text.partition("=")
            place = words[index].place
            index += 1
            if not name.startswith("-"):
                continue
            text: Word | None = Word(text=value, place=place) if equals else None
            if text is None and index < len(words) and not words[index].text.startswith("-"):
                text = words[index]
            name = "--model" if name == "-m" else name
            field = flags.BENCH_NAMES.get(name) or flags.SERVE_NAMES.get(name)
            field = field or name.removeprefix("--")
            if text is not None and text.text not in BENCH_COMMANDS:
                self._take(field, name, Word(text=name, place=place), [text], False)
        self.model = self.given.get("model")

    def _positional(self, word: Word) -> None:
        if word.unknown is not None and self.model is not None:
            self.gaps.append(f"{word.text} may stand for options")
        elif self.model is None:
            value: Any = word.text if word.unknown is None else Unknown(word.unknown)
            self.model = Option(
                name="model", flag="model", value=value, text=word.text, place=word.place
            )
        else:
            message = f"trtllm-serve takes one model, {word.text} is more"
            self._problem("unknown", word, None, BLANK if _blank(word) else message)

    def _take(
        self, field: str, flag: str, word: Word, values: Sequence[Word], is_flag: bool
    ) -> None:
        if is_flag and not values:
            value: Any = True
            text = ""
        elif not values:
            self._problem("missing-value", word, None, f"{flag} has no value")
            return
        elif any(row.unknown is not None for row in values):
            value = Unknown(next(row.unknown for row in values if row.unknown is not None) or "")
            text = values[0].text
        else:
            text = " ".join(row.text for row in values)
            value = typed(text)
        self.given[field] = Option(name=field, flag=flag, value=value, text=text, place=word.place)

    def _problem(
        self,
        kind: Any,
        word: Word,
        text: str | None,
        message: str,
        *,
        successor: str | None = None,
        nearest: str | None = None,
    ) -> None:
        self.problems.append(
            OptionProblem(
                kind=kind,
                flag=word.text.partition("=")[0],
                text=text,
                place=word.place,
                message=message,
                successor=successor,
                nearest=nearest,
            )
        )


def options_of(launch: Launch, version: str | None, basis: str, *, exact: bool) -> EngineOptions:
    """The options of a launch as that version reads them."""
    return Reader(launch, version, basis, exact).options()


def around(table: Mapping[Version, frozenset[str]], version: Version | None) -> frozenset[str]:
    """The names that the nearest snapshots below and above a version have; all for an unknown one."""
    rows = sorted(table)
    if version is None:
        return frozenset(name for row in table.values() for name in row)
    below = [row for row in rows if row <= version[:2]]
    above = [row for row in rows if row >= version[:2]]
    near: list[Version] = [*below[-1:], *above[:1]]
    return frozenset(name for row in near for name in table[row])


def typed(text: str) -> Any:
    """A word as a number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _blank(word: Word) -> bool:
    return not word.text.strip()


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _prefixed(name: str, known: frozenset[str]) -> str | None:
    """The option that argparse takes a word for."""
    if name in known:
        return name
    found = [option for option in known if option.startswith(name)]
    return found[0] if len(found) == 1 and len(name) > 3 else None


def _meant(value: str, choices: Sequence[str]) -> str | None:
    """The choice for a value that is none: of a switch, of a plugin, else the nearest."""
    if choices == ("enable", "disable"):
        return "enable" if value.lower() in (*TRUE_WORDS, "1") else "disable"
    return nearest(value, choices, 0.9) or ("auto" if "auto" in choices else None)


def _defaults(entry: str) -> dict[str, Any]:
    """What counts where nothing is given (commands/serve.py of 1.2, build.py of 0.14)."""
    if entry == "trtllm-build":
        return dict(flags.BUILD_DEFAULTS)
    own = {"host": "localhost"} if entry == "trtllm-serve" else {}
    return {
        **own,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "context_parallel_size": 1,
        "max_batch_size": 2048,
        "max_num_tokens": 8192,
        "max_beam_width": 1,
        "kv_cache_config.free_gpu_memory_fraction": 0.9,
    }
