"""Tables on screens of any width."""

import pytest

from drumbeat.cli.job_view import JOBS
from drumbeat.cli.output import COLUMN_GAP, ELASTIC_WIDTH, MIN_ELASTIC_WIDTH, Column, TextTable

TABLE: TextTable[list[str]] = TextTable(
    Column("id", lambda row, _: row[0]),
    Column("note", lambda row, _: row[1], elastic=True),
    Column("number", lambda row, _: row[2], number=True, drop=1),
)
ROWS = [["x" * 10, "n" * 40, "1"], ["y", "m", "1,000,000"]]


def test_a_wide_screen_shows_everything_in_full() -> None:
    assert TABLE.fit(ROWS, 200) == {0: 10, 1: 40, 2: 9}


@pytest.mark.parametrize("width", range(10 + ELASTIC_WIDTH + 9 + 3 * COLUMN_GAP, 65))
def test_what_may_be_cut_is_cut_before_anything_is_left_out(width: int) -> None:
    widths = TABLE.fit(ROWS, width)
    assert set(widths) == {0, 1, 2}
    assert widths[0] == 10
    assert sum(widths.values()) + 3 * COLUMN_GAP == width


def test_a_column_is_left_out_where_cutting_is_not_enough() -> None:
    assert TABLE.fit(ROWS, 30) == {0: 10, 1: 30 - 10 - 2 * COLUMN_GAP}


def test_what_cannot_be_spared_is_shown_on_any_screen() -> None:
    assert TABLE.fit(ROWS, 5) == {0: 10, 1: MIN_ELASTIC_WIDTH}


@pytest.mark.parametrize("width", [60, 64, 80])
def test_a_list_of_jobs_says_of_which_task_they_are_on_a_screen_of_any_width(width: int) -> None:
    row = ["0" * 36, "send_newsletter", "mail", "succeeded", "1", "2026-11-15 12:00:00", "order-7", "to=ada"]
    widths = JOBS.fit([row], width)
    shown = [JOBS.columns[place].name for place in widths]
    assert shown[:2] == ["id", "task"] and "state" in shown and widths[0] == 36
    assert sum(widths.values()) + COLUMN_GAP * len(widths) <= width
