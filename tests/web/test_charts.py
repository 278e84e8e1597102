"""The geometry of charts."""

from datetime import UTC, datetime

import pytest

from drumbeat.core.stats import BUCKETS, Resolution, Rollup, bucket_index
from drumbeat.durations import to_us
from drumbeat.web.pages.charts import RANGES, Chart, decades, latency, round_up_scale, svg_path, throughput

NOW = datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC)
OVER = RANGES["15m"]
FIRST = OVER.first(to_us(NOW))


def link(at: int, until: int, state: str | None) -> str:
    return f"{at}-{until}-{state}"


def rollup(slot: int, *, run_us: int | None = None, **numbers: int) -> Rollup:
    run = [0] * BUCKETS
    if run_us is not None:
        run[bucket_index(run_us)] = 1
    at = FIRST + slot * OVER.interval_us
    return Rollup(resolution=Resolution.TEN_SECONDS, at=at, queue="q", task="t", run=tuple(run), **numbers)  # type: ignore[arg-type]


def bars(*rollups: Rollup) -> Chart:
    return throughput(rollups, OVER, NOW, link)


def test_the_last_slot_is_the_stretch_under_way() -> None:
    assert FIRST + OVER.length == to_us(datetime(2026, 11, 15, 12, 0, 10, tzinfo=UTC))
    assert len(bars().slots) == OVER.slots and bars().is_empty


def test_a_bar_has_a_part_for_each_outcome_and_each_part_leads_to_its_own_jobs() -> None:
    chart = bars(rollup(3, succeeded=60, failed=30, dead=10))
    slot, at = chart.slots[3], FIRST + 3 * OVER.interval_us
    assert [part.kind for part in slot.segments] == ["succeeded", "failed", "dead"]
    # 20 of the 30 that failed are tried again; the others are told as dead, and not twice.
    assert "20 failed" in slot.tip and "10 dead" in slot.tip
    assert [part.href for part in slot.segments] == [
        f"{at}-{at + OVER.interval_us}-{state}" for state in ("succeeded", None, "dead")
    ]


def test_the_parts_of_a_bar_stand_on_each_other_and_are_as_high_as_their_share_of_the_scale() -> None:
    slot = bars(rollup(0, succeeded=60, failed=30, dead=10)).slots[0]
    assert [(part.y, part.height) for part in slot.segments] == [(40, 60), (20, 20), (10, 10)]


def test_one_dead_letter_among_thousands_is_seen() -> None:
    slot = bars(rollup(0, succeeded=9_999, failed=1, dead=1)).slots[0]
    assert slot.segments[-1].kind == "dead" and slot.segments[-1].height >= 1


def test_roll_ups_of_several_tasks_share_a_bar_and_those_outside_have_none() -> None:
    chart = bars(
        rollup(5, succeeded=1), rollup(5, succeeded=2), rollup(-1, succeeded=9), rollup(OVER.slots, succeeded=9)
    )
    assert chart.words == "Ended runs: 3 succeeded"


@pytest.mark.parametrize(
    ("largest", "top"), [(0, 1), (1, 1), (2, 2), (3, 4), (9, 10), (11, 20), (201, 400), (1_000, 1_000)]
)
def test_the_top_of_a_scale_is_round_and_nothing_is_higher(largest: int, top: int) -> None:
    assert round_up_scale(largest) == top


def test_lines_are_broken_where_nothing_ran() -> None:
    path = svg_path([0.01, 0.1, None, 1.0], width=25, low=-3, high=0)
    assert path.count("M") == 2 and path.count("L") == 3


def test_a_line_is_as_high_as_the_logarithm_of_its_value() -> None:
    assert svg_path([1.0], width=100, low=-2, high=0).endswith("L50.00 0.00")
    assert svg_path([0.1], width=100, low=-2, high=0).endswith("L50.00 50.00")
    assert svg_path([0.000_1], width=100, low=-2, high=0).endswith("L50.00 100.00")


def test_the_scale_of_lengths_holds_all_of_them() -> None:
    assert decades([0.02, 3.0]) == (-2, 1)
    assert decades([0.000_01]) == (-3, -2)
    assert decades([]) == (-3, 0)


def test_a_slot_says_its_percentiles_and_how_many_runs_they_are_of() -> None:
    chart = latency("run", [rollup(2, run_us=9_000), rollup(2, run_us=9_000)], OVER, NOW, link)
    assert "of 2 runs" in chart.slots[2].tip and "p99" in chart.slots[2].tip
    assert "no runs" in chart.slots[3].tip
    assert chart.y_labels == ["100 ms", "10 ms"]
