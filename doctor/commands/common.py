"""What the commands share: options, the registry, the live machine, writing."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.live import LiveHost
    from infer_doctor.model import Report, Severity
    from infer_doctor.registry import Check, Registry

SPINNER_AFTER_S = 0.5
LONGEST_TIMEOUT_S = 86_400

Option = Callable[[Any], Any]


def finite(_: click.Context, parameter: click.Parameter, value: float) -> float:
    """NaN is within every range."""
    if value != value:
        raise click.BadParameter("it is no number", param=parameter)
    return value


def option(*names: str, **settings: Any) -> Option:
    """An option that INFER_DOCTOR_<NAME> sets too."""
    variable = "INFER_DOCTOR_" + names[0].lstrip("-").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


def options(*wanted: Option) -> Option:
    """Several options as one decorator, in reading order."""

    def add(function: Any) -> Any:
        for decorator in reversed(wanted):
            function = decorator(function)
        return function

    return add


def tokens_option(help: str) -> Option:
    """How much is asked for in each answer."""
    return option(
        "--tokens",
        type=click.IntRange(1, 8192),
        default=64,
        show_default=True,
        metavar="N",
        help=help,
    )


wall_option = option(
    "--wall",
    type=click.FloatRange(1, 86_400),
    default=1800.0,
    show_default=True,
    metavar="S",
    help="Seconds that a start may take.",
)
output_option = option("--output", "-o", metavar="FILE", help="Write to FILE instead.")
FORMATS = ("text", "json", "markdown", "junit", "sarif", "html")


def _baseline(_: click.Context, __: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    from infer_doctor.config import BadConfig, use_baseline
    from infer_doctor.host import Unavailable
    from infer_doctor.live import require_answer

    try:
        require_answer(path)
        use_baseline(path)
    except (BadConfig, Unavailable) as error:
        raise click.ClickException(str(error)) from None


baseline_option = option(
    "--baseline",
    metavar="FILE",
    callback=_baseline,
    expose_value=False,
    help="A JSON report: only what is not in it counts.",
)
format_option = options(
    option("--format", type=click.Choice(FORMATS), default="text", show_default=True),
    baseline_option,
)
"""Every command that prints a report has both."""


def _engine_question(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    """NAME==VERSION as a fact."""
    if text is None:
        return None
    from infer_doctor.facts.engine_options import EngineQuestion

    name, equals, version = text.strip().partition("==")
    name = name.strip().lower().replace("_", "-")
    version = version.strip().lstrip("v")
    if name not in ("vllm", "tensorrt-llm") or not equals or not version[:1].isdigit():
        raise click.BadParameter(f"{text!r} is not like vllm==0.12.0 or tensorrt-llm==1.0.0")
    return EngineQuestion(name=name, version=version)  # type: ignore[arg-type]


engine_option = option(
    "--engine",
    callback=_engine_question,
    metavar="NAME==VERSION",
    help="Judge the launch for this engine instead of the installed one (vllm==0.12.0).",
)
gpu_options = options(
    option(
        "--gpu",
        metavar="NAME[:COUNT]",
        help="Judge for these GPUs instead of this machine's: H200, A100-80GB:4, RTX-4090.",
    ),
    option(
        "--gpu-memory",
        metavar="SIZE",
        help="What CUDA can give of each GPU, where the catalogue does not know it: 79.2GiB.",
    ),
)
machine_options = options(
    option(
        "--python",
        metavar="EXE",
        help="Interpreter of the environment to examine (default: the one behind vllm or "
        "trtllm-serve on PATH, else this one).",
    ),
    option("--deep", is_flag=True, help="Also run probes that touch the GPU."),
    option(
        "--timeout",
        type=click.FloatRange(min=0.5, max=LONGEST_TIMEOUT_S),
        callback=finite,
        default=20.0,
        show_default=True,
        metavar="S",
        help="Seconds after which the report comes, whatever hangs.",
    ),
)


@contextlib.contextmanager
def this_machine(timeout_s: float, *, wanted: bool = True) -> Iterator[LiveHost | None]:
    """The live host, whose children start while the checks are loaded; a sign of life meanwhile."""
    if not wanted:
        yield None
        return
    from infer_doctor.live import LiveHost

    spinner = _Spinner()
    try:
        with LiveHost(timeout_s, spinner.turn) as host:
            yield host
    finally:
        spinner.clear()


def judge_for_gpus(
    subjects: Sequence[Subject], registry: Registry, gpu: str | None, gpu_memory: str | None
) -> None:
    """Give the subjects the GPUs that the gpu_options name instead of what is here."""
    if gpu is None and gpu_memory is None:
        return
    from infer_doctor.named import WrongName, give_gpus, gpus_of

    try:
        give_gpus(subjects, registry, gpus_of(gpu, gpu_memory))
    except WrongName as error:
        raise click.ClickException(str(error)) from None


def registry_of_checks() -> Registry:
    from infer_doctor.registry import load

    registry = load()
    for name, error in registry.broken.items():
        click.echo(f"infer-doctor: plugin {name!r} could not be loaded: {error}", err=True)
    return registry


def chosen(registry: Registry, select: Iterable[str], ignore: Iterable[str]) -> list[Check]:
    """The wanted checks; raises for an id or glob that names none."""
    wanted = _named(registry, select) if select else set(registry.checks)
    left = wanted - _named(registry, ignore)
    if not left:
        raise click.ClickException("--select and --ignore leave no check")
    return [check for id, check in registry.checks.items() if id in left]


def _named(registry: Registry, patterns: Iterable[str]) -> set[str]:
    from fnmatch import filter as matching

    found: set[str] = set()
    for pattern in (part for text in patterns for part in text.replace(",", " ").split()):
        ids = matching(registry.checks, pattern)
        if not ids:
            raise click.ClickException(no_such_check(pattern, registry))
        found.update(ids)
    return found


def no_such_check(id: str, registry: Registry) -> str:
    from difflib import get_close_matches

    near = get_close_matches(id, registry.checks, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "; `infer-doctor list` shows all"
    return f"there is no check {id!r}{hint}"


def failed_system_call(error: OSError) -> click.ClickException:
    """A file or folder of the user's that cannot be used, in a line."""
    return click.ClickException(f"{error.filename or ''}: {error.strerror}".strip(": "))


def note(text: str) -> None:
    """A line about what goes on; never in the report. That nobody reads it ends no work."""
    from infer_doctor.render.plain import plain

    with contextlib.suppress(OSError):
        click.echo(f"infer-doctor: {plain(text)}", err=True)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(
    report: Report, format: str, *, fail_on: Severity = "error", required: Collection[str] = ()
) -> str:
    """The report in a form that is no text for a terminal."""
    if format == "json":
        from infer_doctor.render.json import render as render_json

        return render_json(report)
    if format == "markdown":
        from infer_doctor.render.markdown import render as render_markdown

        return render_markdown(report)
    if format == "junit":
        from infer_doctor.render.junit import render as render_junit

        return render_junit(report, fail_on, required)
    if format == "sarif":
        from infer_doctor.registry import load
        from infer_doctor.render.sarif import render as render_sarif

        return render_sarif(report, load().checks)
    from infer_doctor.render.html import render as render_html

    return render_html(report)


def emit(
    report: Report,
    format: str,
    output: str | None,
    *,
    fail_on: Severity = "error",
    required: Collection[str] = (),
) -> None:
    if format == "json":
        from infer_doctor.render.json import pieces

        write(pieces(report), output)
        return
    if format != "text":
        write(document(report, format, fail_on=fail_on, required=required), output)
        return
    from infer_doctor.render.text import render as render_text

    if output is not None or not sys.stdout.isatty():
        write("".join(f"{line.text}\n" for line in render_text(report)), output)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in render_text(report, min(console.width, 100)):
        text = Text(line.text)
        if line.style:
            whole = line.style in ("bold", "dim")
            style = "bold" if line.style == "mark" else line.style
            first = 8 if line.text.startswith(" ") else 6  # "  host  ", "WARN  "
            text.stylize(style, 0, len(line.text) if whole else first)
        console.print(text, soft_wrap=True)


def write(text: str | Iterable[str], output: str | None) -> bool:
    """To a file or standard output, also part by part; a reader that closes the pipe is no error.

    False when it has closed it: whoever writes again and again may end.
    """
    if output is not None and output != "-":
        from infer_doctor.host import Unavailable
        from infer_doctor.live import require_answer

        try:
            require_answer(output)
            _write_file(text, output)
        except Unavailable as error:
            raise click.ClickException(error.reason) from None
        except OSError as error:
            raise click.ClickException(f"{output}: {error.strerror}") from None
        return True
    try:
        sys.stdout.writelines([text] if isinstance(text, str) else text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def write_bytes(data: bytes, output: str) -> None:
    """To a file that is whole or not there."""
    from infer_doctor.host import Unavailable
    from infer_doctor.live import require_answer

    try:
        require_answer(output)
        _write_file(data, output)
    except Unavailable as error:
        raise click.ClickException(error.reason) from None
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from None


def _write_file(data: str | bytes | Iterable[str], path: str) -> None:
    """Write a file; half a one is removed. A FIFO that nobody reads is refused, not waited for."""
    parts = [data] if isinstance(data, (str, bytes)) else data
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    os.set_blocking(descriptor, True)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(
                    part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
                )
    except BaseException:  # a part that cannot be made leaves half a file too
        if os.path.isfile(path):
            os.unlink(path)
        raise


class _Spinner:
    """A sign of life on a terminal, after half a second, while something is slow."""

    FRAMES = "|/-\\"

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()
        self._began = time.monotonic()
        self._turns = 0

    def turn(self) -> None:
        if self._wanted and time.monotonic() - self._began > SPINNER_AFTER_S:
            frame = self.FRAMES[self._turns % len(self.FRAMES)]
            sys.stderr.write(f"\r{frame} examining")
            sys.stderr.flush()
            self._turns += 1

    def clear(self) -> None:
        if self._turns:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
