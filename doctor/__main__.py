"""`infer-doctor` and `python -m infer_doctor`."""

import os
import sys


def main() -> None:
    """Answer `--version` without loading the commands, else hand over to them."""
    _open_streams()
    try:
        code = _version() if sys.argv[1:] == ["--version"] else _command()
        sys.stdout.flush()
    except OSError as error:  # standard output: the reader is gone, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"infer-doctor: standard output: {error.strerror}\n")
            code = 2
    sys.exit(code)


def _version() -> int:
    from infer_doctor._version import VERSION

    sys.stdout.write(f"infer-doctor {VERSION}\n")
    return 0


def _command() -> int:
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        signal.signal(signal.SIGINT, _interrupted)
    from infer_doctor.cli import run

    return run()


def _interrupted(*_: object) -> None:
    """Ctrl-C ends everything at once.

    The usual exception gets lost when it is raised in a callback of an import, and a check would
    take it for a crash.
    """
    live = sys.modules.get("infer_doctor.live")
    if live is not None and hasattr(live, "kill_children"):  # it may be half loaded
        live.kill_children()
    masking = sys.modules.get("infer_doctor.runs.masking")
    if masking is not None and hasattr(masking, "mask_open"):
        masking.mask_open()
    clear = b"\r\x1b[K" if os.isatty(2) else b""
    os.write(2, clear + b"infer-doctor: interrupted\n")
    os._exit(130)


def _open_streams() -> None:
    """Give closed standard streams a place, else the next file opened would become one of them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()
