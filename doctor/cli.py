"""Commands and exit codes; the only place that prints.

0 pass, 1 fail, 2 wrong usage or a fault of ours, 3 unknown, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION

if TYPE_CHECKING:
    from infer_doctor.live import LiveHost
    from infer_doctor.model import Report
    from infer_doctor.registry import Check, Registry

EXIT = {"pass": 0, "fail": 1, "unknown": 3}
USAGE = 2
SPINNER_AFTER_S = 0.5
LONGEST_TIMEOUT_S = 86_400

Option = Callable[[Any], Any]


def _finite(_: click.Context, parameter: click.Parameter, value: float) -> float:
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


output_option = option("--output", "-o", metavar="FILE", help="Write to FILE instead.")
format_option = option(
    "--format", type=click.Choice(["text", "json"]), default="text", show_default=True
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
        callback=_finite,
        default=20.0,
        show_default=True,
        metavar="S",
        help="Seconds after which the report comes, whatever hangs.",
    ),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="infer-doctor", message="%(prog)s %(version)s")
def cli() -> None:
    """The doctor for LLM inference stacks: vLLM and TensorRT-LLM on NVIDIA GPUs.

    Exit codes: 0 pass, 1 fail, 2 wrong usage or a fault of the doctor, 3 unknown.
    """


@cli.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- COMMAND ...]")
@format_option
@output_option
@option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@option("--select", multiple=True, metavar="IDS", help="Only these checks (ids or globs).")
@option("--ignore", multiple=True, metavar="IDS", help="Not these checks (ids or globs).")
@option("--snapshot", metavar="FILE", help="Examine the machine of a snapshot.")
@machine_options
@click.pass_obj
def check(
    command: Sequence[str],
    targets: tuple[str, ...],
    format: str,
    output: str | None,
    fail_on: Any,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    snapshot: str | None,
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """Can an LLM engine run here, what is wrong, and what to do.

    Without TARGET this machine is examined. A TARGET is a file that somebody already has: the
    output of `vllm collect-env`, `python -m torch.utils.collect_env`, `nvidia-smi -q` (or `-q -x`),
    or a snapshot. After `--` stands the command that is to be started.
    """
    from infer_doctor.redact import without_secrets

    started = time.monotonic()
    started_at = _now()
    command = without_secrets(command)
    with _this_machine(timeout, wanted=not targets and snapshot is None) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.snapshot import BadSnapshot

        registry = _registry()
        checks = _chosen(registry, select, ignore)
        try:
            examination = Examination.of(
                registry,
                targets=targets,
                snapshot=snapshot,
                command=command,
                python=python,
                deep=deep,
                host=host,
            )
        except (NoTarget, BadSnapshot) as error:
            raise click.ClickException(str(error)) from None
        results = examination.run(checks)
    if host and host.cannot_start and all(row.outcome == "blocked" for row in results):
        raise click.ClickException(
            f"{sys.executable} cannot be started to look at this machine: {host.cannot_start}"
        )
    from infer_doctor.report import build

    report = build(
        command="check",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=examination.subjects,
        results=results,
        fail_on=fail_on,
        required={check.id for check in checks} if select else (),
        launch=command,
        redactor=examination.redactor,
        redactions=examination.redactions,
    )
    _emit(report, format, output)
    raise click.exceptions.Exit(EXIT[report.verdict])


@cli.command(name="list")
@format_option
@output_option
def list_checks(format: str, output: str | None) -> None:
    """All checks, a line each."""
    checks = sorted(_registry().checks.values(), key=lambda check: check.id)
    if format == "json":
        import json

        rows = [
            {
                "id": check.id,
                "severity": check.severity,
                "category": check.category,
                "since": check.since,
                "title": check.title,
            }
            for check in checks
        ]
        _write(json.dumps(rows, indent=2) + "\n", output)
        return
    width = max(len(check.id) for check in checks)
    lines = (f"{check.id:<{width}}  {check.severity:<7}  {check.title}" for check in checks)
    _write("\n".join(lines) + "\n", output)


@cli.command()
@click.argument("id")
def explain(id: str) -> None:
    """Why a check matters, how it decides, and whether its fix is safe."""
    from infer_doctor.explain import markdown

    registry = _registry()
    if id not in registry.checks:
        raise click.ClickException(_unknown(id, registry))
    text = markdown(registry.checks[id])
    if not sys.stdout.isatty():
        _write(text, None)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@cli.command()
@option(
    "--output",
    "-o",
    required=True,
    metavar="FILE",
    help="Where to write the snapshot.",
)
@machine_options
def snapshot(output: str, python: str | None, deep: bool, timeout: float) -> None:
    """Write what all checks look at to FILE, with secrets and names masked."""
    with _this_machine(timeout) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.snapshot import write

        registry = _registry()
        try:
            examination = Examination.of(registry, python=python, deep=deep, host=host)
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        examination.run(registry.checks.values())
    text = write(examination.captures, version=VERSION, created_at=_now(), python=python)
    _write(text, output)
    masked = ", ".join(f"{row.count} {row.kind}" for row in examination.redactions) or "nothing"
    click.echo(f"{output}: {len(examination.captures)} captures; masked: {masked}", err=True)


@contextlib.contextmanager
def _this_machine(timeout_s: float, *, wanted: bool = True) -> Iterator[LiveHost | None]:
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


def _registry() -> Registry:
    from infer_doctor.registry import load

    registry = load()
    for name, error in registry.broken.items():
        click.echo(f"infer-doctor: plugin {name!r} could not be loaded: {error}", err=True)
    return registry


def _chosen(registry: Registry, select: Iterable[str], ignore: Iterable[str]) -> list[Check]:
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
            raise click.ClickException(_unknown(pattern, registry))
        found.update(ids)
    return found


def _unknown(id: str, registry: Registry) -> str:
    from difflib import get_close_matches

    near = get_close_matches(id, registry.checks, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "; `infer-doctor list` shows all"
    return f"there is no check {id!r}{hint}"


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _emit(report: Report, format: str, output: str | None) -> None:
    if format == "json":
        from infer_doctor.render.json import render as render_json

        _write(render_json(report), output)
        return
    from infer_doctor.render.text import render as render_text

    if output is not None or not sys.stdout.isatty():
        _write("".join(f"{line.text}\n" for line in render_text(report)), output)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in render_text(report, min(console.width, 100)):
        text = Text(line.text)
        if line.style:
            whole = line.style in ("bold", "dim")
            style = "bold" if line.style == "mark" else line.style
            text.stylize(style, 0, len(line.text) if whole else 8)
        console.print(text, soft_wrap=True)


def _write(text: str, output: str | None) -> None:
    """To a file or standard output; a reader that closes the pipe early is no error."""
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
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_file(text: str, path: str) -> None:
    """Write a file; half a one is removed. A FIFO that nobody reads is refused, not waited for."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    os.set_blocking(descriptor, True)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
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


def _fail(message: str, code: int = USAGE) -> int:
    from infer_doctor.render.plain import plain

    line = plain(" ".join(message.split()))
    try:
        sys.stderr.write(f"infer-doctor: {line}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it: the code still says it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. Raises only OSError for a full standard output."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, command = words[:place], words[place + 1 :]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(words, prog_name="infer-doctor", standalone_mode=False, obj=command)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "infer-doctor"
        return _fail(f"{error.format_message()} (see `{where} --help`)")
    except click.ClickException as error:
        return _fail(error.format_message())
    except (BrokenPipeError, SystemExit):  # click's answer to a closed pipe under --help
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        # The last line of defence: a fault of ours is one line, not a traceback in a ticket.
        from infer_doctor.engine import crash_line

        return _fail(f"internal fault: {crash_line(error)}")
