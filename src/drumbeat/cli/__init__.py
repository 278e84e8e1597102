"""The command line: `drumbeat` and `python -m drumbeat`.

Nothing here but the door. Each noun has a module of its own that is imported when it is called for, so that
`drumbeat --help` stays quick.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command that the arguments of this process name, and exit."""
    from drumbeat.cli.program import program

    program.main()
    raise AssertionError("a click program exits by itself")
