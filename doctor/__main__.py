"""`infer-doctor` and `python -m infer_doctor`."""

import sys


def main() -> None:
    """Answer `--version` without loading the commands, else hand over to them."""
    if sys.argv[1:] == ["--version"]:
        from infer_doctor._version import VERSION

        sys.stdout.write(f"infer-doctor {VERSION}\n")
        return
    from infer_doctor.cli import run

    sys.exit(run())


if __name__ == "__main__":
    main()
