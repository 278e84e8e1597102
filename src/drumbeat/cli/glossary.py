"""`drumbeat glossary`: what the words mean."""

from __future__ import annotations

import click

from drumbeat import glossary
from drumbeat.cli.failures import BadInput


@click.command()
@click.argument("word", required=False)
def command(word: str | None) -> None:
    """Explain the words that Drumbeat uses, or one of them."""
    terms = glossary.TERMS if word is None else glossary.find(word)
    if not terms:
        raise BadInput(f"no word of the glossary contains {word!r}; `drumbeat glossary` lists all of them")
    for term in terms:
        click.echo(f"{term.name}: {term.meaning}")
