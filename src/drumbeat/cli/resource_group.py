"""A group of commands about one resource, such as `drumbeat jobs`; without a command it runs `list`."""

from __future__ import annotations

import click

from drumbeat.cli import failures
from drumbeat.cli.options import target_options


class ResourceGroup(click.Group):
    """Refuses an unknown command with the list of known ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `drumbeat jobs --task charge` means its list; in `drumbeat jobs --url URL show ID` the command comes later.
        if args and args[0].startswith("-") and args[0] != "--help" and not self.commands.keys() & set(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise failures.unknown_command(args[0], list(self.commands), ctx)
        return super().resolve_command(ctx, args)


def resource_group(name: str, help: str) -> ResourceGroup:
    """A group with the shared options; `drumbeat jobs` is `drumbeat jobs list`."""

    @click.pass_context
    def without_verb(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            verb = group.commands["list"]
            with verb.make_context("list", [], parent=ctx) as inner:
                verb.invoke(inner)

    group = ResourceGroup(name, callback=target_options(without_verb), help=help, invoke_without_command=True)
    group.params = list(reversed(getattr(without_verb, "__click_params__", [])))
    return group
