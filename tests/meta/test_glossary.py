"""docs/glossary.md says what the code's own table says, and each word is there once."""

from drumbeat.glossary import TERMS, find, meaning_of, to_markdown
from tests.meta.project import ROOT


def test_the_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8") == to_markdown()


def test_each_word_has_one_meaning() -> None:
    names = [term.name for term in TERMS]
    assert len(set(names)) == len(names)
    assert [name for name in names if name != name.casefold()] == []


def test_a_word_is_found_by_name_and_else_by_what_its_meaning_says() -> None:
    assert [term.name for term in find("Lease ")] == ["lease"]
    assert "instance" in [term.name for term in find("heartbeat and its roles")]
    assert find("no such word") == []
    assert meaning_of("job").startswith("One queued call")
