"""The process that is the command `qtool`, also as `python -m qtool`: imports little before it can be interrupted."""

import sys


def main() -> int:
    """Run the process's command line and return its exit status."""
    try:
        from qtool.cli.main import main as run
    except KeyboardInterrupt:  # before the command line can say so itself
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
