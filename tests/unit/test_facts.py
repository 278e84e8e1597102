"""When a fact about a store is a reason to worry."""

import pytest

from drumbeat.core.health import HealthLevel
from drumbeat.store import health

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("store", "level", "told"),
    [
        (10 * SECOND, HealthLevel.OK, "the same"),
        (11 * SECOND, HealthLevel.OK, "the same"),
        (11 * SECOND + SECOND // 2, HealthLevel.OK, "+0.500 s"),
        (14 * SECOND, HealthLevel.NOTE, "+3.000 s"),
        (-50 * SECOND, HealthLevel.WARN, "-60.000 s"),
        (3_611 * SECOND, HealthLevel.WARN, "+3600.000 s"),
    ],
)
def test_clocks_are_apart_only_by_what_the_way_of_the_question_does_not_explain(
    store: int, level: HealthLevel, told: str
) -> None:
    found = health.check_clock(10 * SECOND, store, 11 * SECOND)
    assert found.level is level
    assert found.value.startswith(told)
    assert bool(found.advice) == (level is not HealthLevel.OK)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 bytes"),
        (1_023, "1023 bytes"),
        (1_024, "1.0 KiB"),
        (150 * 1_024, "150 KiB"),
        (64 * 1024 * 1024, "64.0 MiB"),
        (3 * 1024**5, "3072 TiB"),
    ],
)
def test_sizes_are_told_in_a_few_figures(count: int, told: str) -> None:
    assert health.format_size(count) == told


@pytest.mark.parametrize(
    ("used", "most", "level"), [(89, 100, HealthLevel.OK), (90, 100, HealthLevel.WARN), (90, 0, HealthLevel.OK)]
)
def test_what_is_nine_tenths_full_is_a_warning(used: int, most: int, level: HealthLevel) -> None:
    found = health.check_usage("connections", used, most, "some", "raise it")
    assert (found.level, found.advice) == (level, "raise it" if level is HealthLevel.WARN else "")


@pytest.mark.parametrize(
    ("version", "level", "advice"),
    [(5, HealthLevel.OK, ""), (4, HealthLevel.NOTE, "migrate"), (6, HealthLevel.NOTE, "release")],
)
def test_a_schema_of_another_age_says_what_to_do(version: int, level: HealthLevel, advice: str) -> None:
    found = health.check_schema(version, 5)
    assert found.level is level
    assert advice in found.advice
