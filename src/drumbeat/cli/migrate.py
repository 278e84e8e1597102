"""`drumbeat migrate`: create the store's tables, or upgrade them. Idempotent."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from drumbeat.cli import output
from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.cli.options import CliTarget, target_command, target_options


@target_command("migrate", *target_options)
@click.argument("place", required=False, metavar="[URL]")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if an upgrade is needed.")
@click.option("--sql", is_flag=True, help="Change nothing; print the SQL that would be run. (PostgreSQL)")
def command(target: CliTarget, /, place: str | None, check: bool, sql: bool) -> None:
    """Create the store's tables, or upgrade them.

    The tables of PostgreSQL are in a schema named after the namespace. A SQLite file is also created and upgraded by the
    first program that opens it.
    """
    from drumbeat.cli.connection import load_app as find

    if place is not None and target.flags.setdefault("url", place) != place:
        raise BadInput("two URLs: give the argument or --url, not both")
    settings = find(target).settings
    _migrate_store(target, settings.url, settings.namespace, check=check, sql=sql)
    if settings.outbox is not None and place is None and not sql:
        _migrate_store(target, settings.outbox, settings.namespace, check=check, sql=sql)


def _migrate_store(target: CliTarget, url: str, namespace: str, *, check: bool, sql: bool) -> None:
    """One store: that of the jobs, or the outbox."""
    from drumbeat.store.urls import migrate_store, migration_script

    found, known, where = _read_versions(url, namespace)
    if sql:
        click.echo(migration_script(url, namespace=namespace, after=found), nl=False)
        return
    needed = found < known
    if needed and not check:
        asyncio.run(migrate_store(url, namespace=namespace))
    now, _, _ = _read_versions(url, namespace)
    _report(target, {"url": where, "found": found, "version": now, "known": known, "up_to_date": now >= known})
    if needed and check:
        raise NotDone(f"{where}: the schema is version {found}, this Drumbeat has {known}: run `drumbeat migrate`")


def _read_versions(url: str, namespace: str) -> tuple[int, int, str]:
    """The version of the store, the version that this code knows, and the store's URL without its password."""
    from drumbeat.errors import SchemaOutOfDate
    from drumbeat.redaction import mask_url
    from drumbeat.store.urls import parse, read_schema_version

    found, known = read_schema_version(url, namespace=namespace)
    if found.oldest_code > known:
        raise SchemaOutOfDate(found=found.version, known=known)
    return found.version, known, mask_url(parse(url).text)


def _report(target: CliTarget, facts: dict[str, Any]) -> None:
    if target.json:
        output.print_json(facts)
    elif facts["found"] != facts["version"]:
        output.print_line(f"{facts['url']}: version {facts['found']} -> {facts['version']}")
    elif facts["up_to_date"]:
        output.print_line(f"{facts['url']}: version {facts['version']}, nothing to do")
