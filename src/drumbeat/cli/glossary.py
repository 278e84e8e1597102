"""`drumbeat glossary`: the terms of Drumbeat."""

from __future__ import annotations

import click

from drumbeat import glossary
from drumbeat.cli import completion
from drumbeat.cli.failures import BadInput


@click.command("glossary")
@click.argument("word", required=False, shell_complete=completion.glossary_terms)
def command(word: str | None) -> None:
    """Explain the terms that Drumbeat uses, or those that contain WORD.

    \b
      drumbeat glossary lease
    """
    terms = glossary.TERMS if word is None else glossary.find(word)
    if not terms:
        raise BadInput(f"no term of the glossary contains {word!r}; `drumbeat glossary` lists all of them")
    for term in terms:
        click.echo(f"{term.name}: {term.meaning}")
