"""The root command and the list of all commands, in groups.

The module of a command is imported only when it is called, so the one-line helps are here. `failures.py` handles errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from drumbeat.cli import failures

GROUPS = {
    "Start": {
        "demo": "Watch jobs succeed, wait, fail, die with their worker and recover.",
        "run": "Run a worker, or several, for an app.",
        "dashboard": "Serve the dashboard and its API.",
        "migrate": "Create the store's tables, or upgrade them.",
    },
    "Look and act": {
        "enqueue": "Enqueue a job of an app's task.",
        "signal": "Send a signal to a job that waits for it.",
        "explain": "Explain why a job is not running.",
        "top": "Watch queues, rates, instances and new dead letters, live.",
        "doctor": "Check the store and the cluster, and say what to do about problems.",
        "jobs": "List, show and cancel jobs, or run them now.",
        "dead": "List, show, group, replay or discard dead letters.",
        "workflows": "List and show workflows, cancel them, or replay what failed of them.",
        "queues": "List, show, pause and resume queues.",
        "tasks": "List and show tasks, with the numbers of their jobs.",
        "schedules": "List, preview, create, change, pause schedules; show their fires.",
        "instances": "List and show the running processes.",
        "limits": "List, show, set and reset limits of queues, tasks and groups.",
        "groups": "List groups of jobs: who waits, who runs, and since when.",
        "locks": "List and show locks, or release one by force.",
        "audit": "List and show who did what, when, and for which reason.",
        "glossary": "Explain the terms that Drumbeat uses.",
    },
}
"""The commands and their helps."""
COMMANDS = [name for commands in GROUPS.values() for name in commands]
ARGUMENTS = "drumbeat.arguments"
"""All arguments of the command line, in the context's `meta`: a program of its own may have called us."""
COMPLETION_VARIABLE = "_DRUMBEAT_COMPLETE"
"""Set by a shell that asks for completions."""


class RootCommand(failures.StrictGroup):
    """A group that imports a command when it is called, and reports every failure in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"drumbeat.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_spacing=4)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        name = prog_name or "drumbeat"
        if COMPLETION_VARIABLE in os.environ:
            return super().main(args, name, complete_var or COMPLETION_VARIABLE, standalone_mode, **extra)

        def start() -> Any:
            given = list(sys.argv[1:] if args is None else args)
            failures.check_text(given)
            # Not click's own main, which prints a newline at Ctrl-C and has its own exit code for closed pipes.
            with self.make_context(name, list(given), **extra) as ctx:
                ctx.meta[ARGUMENTS] = given
                return self.invoke(ctx)

        code = failures.run_and_report(start)
        if standalone_mode:
            sys.exit(code)
        return code


def show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"drumbeat {version('drumbeat')}")
        ctx.exit()


@click.command(
    "drumbeat",
    cls=RootCommand,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings come from flags, the app's code, DRUMBEAT_* variables and .env, in this order. "
    "DRUMBEAT_DEBUG=1 shows the traceback of an error.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
@click.pass_context
def program(ctx: click.Context) -> None:
    """Background jobs, schedules and locks on SQLite, PostgreSQL or Redis: nothing accepted is lost.

    \b
      drumbeat demo            see it work, on a temporary file
      drumbeat run app:app     run a worker for `app` in app.py
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
