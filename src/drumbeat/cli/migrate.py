"""`drumbeat migrate`: create the store's tables, or bring them up to date. Harmless where nothing is to do."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from drumbeat.cli import output
from drumbeat.cli.failures import NotDone, Refused
from drumbeat.cli.options import Target, pass_target, target_options


@click.command("migrate")
@click.argument("place", required=False, metavar="[URL]")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if something is to do.")
@click.option("--sql", is_flag=True, help="Change nothing; print the SQL that would be run. (PostgreSQL)")
@target_options
@pass_target
def command(target: Target, /, place: str | None, check: bool, sql: bool) -> None:
    """Create the store's tables, or bring them up to date.

    PostgreSQL's tables live in a schema of the namespace's name. A SQLite file is also created and upgraded by the first
    program that opens it.
    """
    from drumbeat.cli.connection import found as find

    if place is not None and target.flags.setdefault("url", place) != place:
        raise Refused("two URLs: give the argument or --url, not both")
    settings = find(target).settings
    _one(target, settings.url, settings.namespace, check=check, sql=sql)
    if settings.outbox is not None and place is None and not sql:
        _one(target, settings.outbox, settings.namespace, check=check, sql=sql)


def _one(target: Target, url: str, namespace: str, *, check: bool, sql: bool) -> None:
    """One store: that of the jobs, or the outbox."""
    found, known, where = _look(url, namespace)
    if sql:
        click.echo(_script(url, namespace, found), nl=False)
        return
    needed = found < known
    if needed and not check:
        asyncio.run(bring_up(url, namespace))
    now, _, _ = _look(url, namespace)
    _tell(target, {"url": where, "found": found, "version": now, "known": known, "up_to_date": now >= known})
    if needed and check:
        raise NotDone(f"{where}: the schema is version {found}, this Drumbeat has {known}: run `drumbeat migrate`")


def _look(url: str, namespace: str) -> tuple[int, int, str]:
    """The version that the store has, the one that this code knows, and where the store is."""
    from drumbeat.errors import SchemaOutOfDate
    from drumbeat.redaction import mask_url
    from drumbeat.store.urls import look_at_schema, parse

    found, known = look_at_schema(url, namespace=namespace)
    if found.oldest_code > known:
        raise SchemaOutOfDate(found=found.version, known=known)
    return found.version, known, mask_url(parse(url).text)


def _script(url: str, namespace: str, found: int) -> str:
    from drumbeat.store.urls import migration_script

    return migration_script(url, namespace=namespace, after=found)


async def bring_up(url: str, namespace: str) -> None:
    """Create or upgrade the tables; SQLite's are brought up to date whenever the file is opened, asked for or not."""
    from drumbeat.store.urls import migrate_store

    await migrate_store(url, namespace=namespace)


async def try_out(url: str, namespace: str) -> None:
    """Open the store once: whoever cannot use it is told so before anything is started."""
    from drumbeat.store.urls import open_store

    async with await open_store(url, namespace=namespace):
        pass


def _tell(target: Target, facts: dict[str, Any]) -> None:
    if target.json:
        output.json_document(facts)
    elif facts["found"] != facts["version"]:
        output.say(f"{facts['url']}: version {facts['found']} -> {facts['version']}")
    elif facts["up_to_date"]:
        output.say(f"{facts['url']}: version {facts['version']}, nothing to do")
