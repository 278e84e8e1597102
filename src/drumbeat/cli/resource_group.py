"""A group of commands about one resource, such as `drumbeat jobs`; without a command it runs `list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from drumbeat.cli.failures import StrictGroup
from drumbeat.cli.options import target_command, target_options


class ResourceGroup(StrictGroup):
    """Its commands have the shared options, as it has itself."""

    def __init__(self, name: str, help: str) -> None:
        run = click.pass_context(self._run_list)
        super().__init__(name, callback=run, params=list(target_options), help=help, invoke_without_command=True)

    def verb(self, name: str, *options: click.Parameter) -> Callable[[Callable[..., Any]], click.Command]:
        """A command of this resource; `options` as of `target_command`."""

        def decorate(function: Callable[..., Any]) -> click.Command:
            command = target_command(name, *options, *target_options)(function)
            self.add_command(command)
            return command

        return decorate

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `drumbeat jobs --task charge` means its list; in `drumbeat jobs --url URL show ID` the command comes later.
        if args and args[0].startswith("-") and args[0] != "--help" and not self.commands.keys() & set(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def _run_list(self, ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            verb = self.commands["list"]
            with verb.make_context("list", [], parent=ctx) as inner:
                verb.invoke(inner)
