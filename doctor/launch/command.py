"""A command line -> Launch: wrappers are taken off, variables taken over, nothing is executed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from infer_doctor.launch.model import COMMAND_LINE, Kind, Launch, Place, Variable, Word

Engine = Literal["vllm", "tensorrt-llm"]

ENGINES: Mapping[str, Engine] = {
    "vllm": "vllm",
    "trtllm-serve": "tensorrt-llm",
    "trtllm-bench": "tensorrt-llm",
    "trtllm-build": "tensorrt-llm",
    "trtllm-eval": "tensorrt-llm",
}
"""Program -> engine."""

MODULES: Mapping[str, tuple[Engine, str]] = {
    "vllm.entrypoints.openai.api_server": ("vllm", "api_server"),
    "vllm.entrypoints.api_server": ("vllm", "demo_server"),
    "vllm.entrypoints.openai.run_batch": ("vllm", "run-batch"),
    "vllm.entrypoints.cli.main": ("vllm", ""),
    "vllm": ("vllm", ""),
    "tensorrt_llm.commands.serve": ("tensorrt-llm", "trtllm-serve"),
    "tensorrt_llm.commands.bench": ("tensorrt-llm", "trtllm-bench"),
    "tensorrt_llm.commands.build": ("tensorrt-llm", "trtllm-build"),
    "tensorrt_llm.commands.eval": ("tensorrt-llm", "trtllm-eval"),
}
"""What `python -m` starts -> engine and entry; an empty entry is the next word."""

WRAPPERS: Mapping[str, frozenset[str]] = {
    name: frozenset(options.split())
    for name, options in {
        "env": "-u --unset -C --chdir -a --argv0",
        "exec": "-a",
        "command": "",
        "nohup": "",
        "setsid": "",
        "time": "-f --format -o --output",
        "nice": "-n --adjustment",
        "ionice": "-c --class -n --classdata",
        "stdbuf": "-i --input -o --output -e --error",
        "numactl": "-N -m -C -i -p -w --cpunodebind --membind --physcpubind --interleave "
        "--preferred --cpubind --weighted-interleave",
        "taskset": "",
        "timeout": "-k --kill-after -s --signal",
        "sudo": "-u --user -g --group -h --host -p --prompt -C --close-from -D --chdir",
        "tini": "-p -e",
        "dumb-init": "-r --rewrite",
        "trtllm-llmapi-launch": "",
        "mpirun": "-n -np --np -c -H -host --host -hostfile --hostfile -machinefile -x --map-by "
        "--bind-to --rank-by -wdir --wdir -wd -npernode --npernode -N -ppn -genvlist -path",
        "srun": "-N -n -c -p -A -t -J -w -x -o -e -i -D -G --nodes --ntasks --cpus-per-task "
        "--partition --account --time --job-name --nodelist --exclude --output --error --chdir "
        "--gpus --gres --mpi --ntasks-per-node --gpus-per-node --gpus-per-task --mem --export "
        "--container-image --container-name --container-mounts --container-workdir --qos",
        "torchrun": "--nnodes --nproc-per-node --nproc_per_node --node-rank --node_rank "
        "--master-addr --master_addr --master-port --master_port --rdzv-backend --rdzv_backend "
        "--rdzv-endpoint --rdzv_endpoint --rdzv-id --rdzv_id --max-restarts --log-dir",
    }.items()
}
"""Programs that start another one -> their options that take the next word (their manuals)."""

WRAPPERS = {**WRAPPERS, "mpiexec": WRAPPERS["mpirun"]}

RUNNERS: Mapping[tuple[str, str], frozenset[str]] = {
    key: frozenset(options.split())
    for key, options in {
        ("uv", "run"): "--with --with-editable --with-requirements --python -p --extra --group "
        "--only-group --no-group --package --project --directory --env-file --index "
        "--default-index --index-url --extra-index-url --find-links --config-file --cache-dir "
        "--torch-backend --index-strategy --prerelease --refresh-package --color",
        ("poetry", "run"): "-C --directory -P --project",
        ("pipenv", "run"): "--python",
        ("conda", "run"): "-n --name -p --prefix --cwd",
        ("mamba", "run"): "-n --name -p --prefix --cwd",
        ("micromamba", "run"): "-n --name -p --prefix --cwd",
        ("pixi", "run"): "-e --environment --manifest-path",
        ("hatch", "run"): "",
    }.items()
}
"""The same for programs with sub-commands."""

TWO_VALUES = frozenset({"-mca", "--mca", "-genv", "-env"})
"""Options of mpirun that take two words."""

OWN_ARGUMENTS = {"timeout": 1, "taskset": 1}
"""Words that a wrapper takes before the command: a duration, a mask."""

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
PYTHON = re.compile(r"python(3(\.\d+)?t?)?")
PYTHON_VALUES = ("-X", "-W", "--check-hash-based-pycs")


class Start:
    """What a command line starts, wrappers taken off: `words` follow `program`."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.all = tuple(words)
        self.environment: list[Variable] = []
        self.executable: str | None = None
        self.engine: Engine | None = None
        self.entry = ""
        self._at = 0
        self._peel()

    @property
    def program(self) -> tuple[Word, ...]:
        return self.all[: self._at]

    @property
    def words(self) -> tuple[Word, ...]:
        return self.all[self._at :]

    def _text(self, ahead: int = 0) -> str | None:
        place = self._at + ahead
        return self.all[place].text if place < len(self.all) else None

    def _peel(self) -> None:
        while (text := self._text()) is not None:
            assignment = ASSIGNMENT.fullmatch(text)
            name = posixpath.basename(text)
            if assignment is not None:
                self._assign(self.all[self._at])
                self._at += 1
            elif name in WRAPPERS:
                self._at += 1
                self._options(name, WRAPPERS[name])
                self._at += OWN_ARGUMENTS.get(name, 0) if not self._listed(name) else 0
                if name == "torchrun":
                    self._python(text, [])
                    return
            elif (name, self._text(1) or "") in RUNNERS:
                runner = (name, self._text(1) or "")
                self._at += 2
                self._options(name, RUNNERS[runner])
            else:
                self._program(name, text)
                return

    def _listed(self, name: str) -> bool:
        """taskset -c LIST: the list was the option's."""
        return name == "taskset" and any(word.text in ("-c", "-cp") for word in self.program[-2:-1])

    def _assign(self, word: Word) -> None:
        found = ASSIGNMENT.fullmatch(word.text)
        if found is not None:
            value = None if word.unknown else found[3]
            self.environment.append(
                Variable(name=found[1], value=value, place=word.place, source=word.unknown)
            )

    def _options(self, name: str, with_value: frozenset[str]) -> None:
        """Skip the options of a wrapper; those that set variables are taken over."""
        while (text := self._text()) is not None and text.startswith("-"):
            self._at += 1
            if text == "--":
                return
            if name == "taskset" and text == "-c":
                self._at += 1
            elif text in TWO_VALUES and name.startswith("mpi"):
                self._at += 2
            elif text in with_value:
                if name.startswith("mpi") and text == "-x" and self._at < len(self.all):
                    self._assign(self.all[self._at])
                self._at += 1
        self._at = min(self._at, len(self.all))

    def _program(self, name: str, text: str) -> None:
        """The program itself."""
        self.executable = text
        if PYTHON.fullmatch(name):
            self._at += 1
            self._python(text, list(PYTHON_VALUES))
            return
        self._at += 1
        self.engine = ENGINES.get(name)
        if self.engine == "vllm":
            self._sub_command()
        elif self.engine is not None:
            self.entry = name
            if name == "trtllm-serve":
                self._trtllm_serve()

    def _python(self, text: str, with_value: list[str]) -> None:
        """`-m MODULE` after the options of Python or torchrun."""
        self.executable = text
        while (word := self._text()) is not None and word.startswith("-"):
            self._at += 1
            if word in ("-m", "--module"):
                self.engine, self.entry = MODULES.get(self._text() or "", (None, ""))
                self._at = min(self._at + 1, len(self.all))
                if self.engine == "vllm" and not self.entry:
                    self._sub_command()
                elif self.entry == "trtllm-serve":
                    self._trtllm_serve()
                return
            if word == "-c":
                return
            if word in with_value:
                self._at += 1
        self._at = min(self._at, len(self.all))
        script = posixpath.basename(self._text() or "")
        if script in ENGINES:  # `python /opt/venv/bin/vllm serve`
            self._program(script, text)

    def _sub_command(self) -> None:
        """`vllm serve`, `vllm bench serve`."""
        text = self._text()
        if text is not None and not text.startswith("-"):
            self.entry = text
            self._at += 1

    def _trtllm_serve(self) -> None:
        """`serve` is the command that trtllm-serve takes when none is named."""
        text = self._text()
        if text == "serve":
            self._at += 1
        elif text in ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"):
            self.entry = f"trtllm-serve {text}"
            self._at += 1


def read(
    words: Sequence[str | Word],
    *,
    place: Place | None = None,
    name: str = COMMAND_LINE,
    kind: Kind = "command",
    machine: Literal["local", "another"] = "local",
    environment: Sequence[Variable] = (),
) -> Launch:
    """One command line as a Launch; `engine` is None when it starts none that is known."""
    where = place or Place(file=COMMAND_LINE)
    whole = [word if isinstance(word, Word) else Word(text=word, place=where) for word in words]
    start = Start(whole)
    return Launch(
        name=name,
        kind=kind,
        machine=machine,
        engine=start.engine,
        entry=start.entry,
        executable=start.executable,
        place=where,
        program=start.program,
        words=start.words,
        environment=(*environment, *start.environment),
    )
