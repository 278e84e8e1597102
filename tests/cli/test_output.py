"""Tables on screens of any width."""

import pytest

from drumbeat.cli.job_view import JOB_COLUMNS
from drumbeat.cli.output import COLUMN_GAP, ELASTIC_WIDTH, MIN_ELASTIC_WIDTH, TableColumns

COLUMNS = TableColumns(
    names=("id", "note", "number"), numbers=frozenset({"number"}), elastic=frozenset({"note"}), droppable=("number",)
)
ROWS = [["x" * 10, "n" * 40, "1"], ["y", "m", "1,000,000"]]


def test_a_wide_screen_shows_everything_in_full() -> None:
    assert COLUMNS.fit(ROWS, 200) == {0: 10, 1: 40, 2: 9}


@pytest.mark.parametrize("width", range(10 + ELASTIC_WIDTH + 9 + 3 * COLUMN_GAP, 65))
def test_what_may_be_cut_is_cut_before_anything_is_left_out(width: int) -> None:
    widths = COLUMNS.fit(ROWS, width)
    assert set(widths) == {0, 1, 2}
    assert widths[0] == 10
    assert sum(widths.values()) + 3 * COLUMN_GAP == width


def test_a_column_is_left_out_where_cutting_is_not_enough() -> None:
    assert COLUMNS.fit(ROWS, 30) == {0: 10, 1: 30 - 10 - 2 * COLUMN_GAP}


def test_what_cannot_be_spared_is_shown_on_any_screen() -> None:
    assert COLUMNS.fit(ROWS, 5) == {0: 10, 1: MIN_ELASTIC_WIDTH}


@pytest.mark.parametrize("width", [60, 64, 80])
def test_a_list_of_jobs_says_of_which_task_they_are_on_a_screen_of_any_width(width: int) -> None:
    row = ["0" * 36, "send_newsletter", "mail", "succeeded", "1", "2026-11-15 12:00:00", "order-7", "to=ada"]
    widths = JOB_COLUMNS.fit([row], width)
    shown = [JOB_COLUMNS.names[place] for place in widths]
    assert shown[:2] == ["id", "task"] and "state" in shown and widths[0] == 36
    assert sum(widths.values()) + COLUMN_GAP * len(widths) <= width
