"""`infer-doctor` and `python -m infer_doctor`."""

import os
import sys


def main() -> None:
    """Answer `--version` without loading the commands, else hand over to them."""
    _open_streams()
    try:
        code = _version() if sys.argv[1:] == ["--version"] else _command()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the commands could take care of it
        sys.stderr.write("infer-doctor: interrupted\n")
        code = 130
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
    from infer_doctor.cli import run

    return run()


def _open_streams() -> None:
    """Give closed standard streams a place, else the next file opened would become one of them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()
