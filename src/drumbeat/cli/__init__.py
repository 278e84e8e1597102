"""The command line: `drumbeat` and `python -m drumbeat`.

Only the entry point. The module of a command is imported when the command is called, so that `drumbeat --help` stays fast.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command of this process's arguments, and exit."""
    from drumbeat.cli.program import program

    program.main()
    raise AssertionError("a click program exits by itself")
