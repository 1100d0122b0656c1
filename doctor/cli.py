"""The commands by name, and the exit codes.

0 pass, 1 fail, 2 wrong usage or a fault of ours, 3 unknown, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION

if TYPE_CHECKING:
    from infer_doctor.config import Config

USAGE = 2

COMMANDS = (
    "bundle",
    "check",
    "compare",
    "diagnose",
    "explain",
    "fix",
    "history",
    "list",
    "plan",
    "preflight",
    "probe",
    "reproduce",
    "snapshot",
    "undo",
)
"""Each is a module of `commands` with a click command; only the one that runs is loaded."""

NO_COMMAND: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The help as an error, since click 8.2; before it was printed with exit code 0."""

ATTRIBUTES = {"list": "list_checks"}
"""Where the function may not be called like its command."""


class Commands(click.Group):
    """Loads a command when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"infer_doctor.commands.{cmd_name}")
        command: click.Command = getattr(module, ATTRIBUTES.get(cmd_name, cmd_name))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Names what was meant: click knows no commands that are not loaded."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="infer-doctor", message="%(prog)s %(version)s")
def cli() -> None:
    """The doctor for LLM inference stacks: vLLM and TensorRT-LLM on NVIDIA GPUs.

    Exit codes: 0 pass, 1 fail, 2 wrong usage or a fault of the doctor, 3 unknown.
    """


def _fail(message: str, code: int = USAGE) -> int:
    from infer_doctor.render.plain import plain

    return _told(f"infer-doctor: {plain(' '.join(message.split()))}", code)


def _told(text: str, code: int = USAGE) -> int:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it: the code still says it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def _settings(words: Sequence[str]) -> dict[str, dict[str, object]]:
    """The options of the settings file for the command that runs; its suppressions are put in force."""
    from infer_doctor import config
    from infer_doctor.host import Unavailable

    config.use(None)
    name = next((word for word in words if word in COMMANDS), None)
    if name is None or "--help" in words or "-h" in words:
        return {}
    if name == "preflight":
        from infer_doctor.preflight import skipped

        if skipped():  # in an emergency a broken file keeps nothing from starting
            return {}
    try:
        found = config.find(_answering(os.getcwd()))
    except config.BadConfig as error:
        raise click.ClickException(str(error)) from None
    except (OSError, Unavailable):  # the working folder is gone, or its server
        return {}
    if found is None:
        return {}
    config.use(found)
    for row in found.expired:
        _fail(f"{found.path}: the suppression of {row.name} ended on {row.expires}")
    return {name: _options_of(name, found)}


def _answering(folder: str) -> str:
    """The folder; raises Unavailable when it lies on a mount that does not answer."""
    from infer_doctor.dead import mount_of, mounts

    if mount_of(folder, mounts()) is not None:
        from infer_doctor.live import require_answer

        require_answer(folder)
    return folder


def _options_of(name: str, found: Config) -> dict[str, object]:
    """Those of the options that this command has; raises for one that no command has."""
    own = _option_names(name)
    for key in found.options:
        if key not in own and not any(key in _option_names(other) for other in COMMANDS):
            raise click.ClickException(f"{found.path}: there is no option {key!r}")
    return {
        key: [value] if own[key].multiple and isinstance(value, str) else value
        for key, value in found.options.items()
        if key in own
    }


def _option_names(name: str) -> dict[str, click.Option]:
    command = cli.get_command(click.Context(cli), name)
    rows = command.params if command else ()
    return {str(row.name): row for row in rows if isinstance(row, click.Option)}


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
        settings = _settings(words)
        code = cli.main(
            words,
            prog_name="infer-doctor",
            standalone_mode=False,
            obj=command,
            default_map=settings,
        )
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except click.UsageError as error:
        if isinstance(error, NO_COMMAND):
            return _told(error.format_message())
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
