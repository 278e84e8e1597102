"""docs/records.md has the fields of every public record."""

from tests.meta import record_page


def test_the_page_is_made_from_the_records() -> None:
    assert record_page.PAGE.read_text(encoding="utf-8") == record_page.to_markdown(), (
        "run `python -m tests.meta.record_page`"
    )
