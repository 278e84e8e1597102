"""What leaks, steps up or creeps is seen; saw-teeth, peaks, noise and a warm-up are not taken for it."""

import random
from collections.abc import Callable

import pytest

from tests.soak.flatness import Sample, Tolerance, find_slope, judge

MIB = float(1 << 20)
MEMORY = Tolerance(floor=2 * MIB, share=0.03)
ROWS = Tolerance(floor=100, share=0.2)
HALF_AN_HOUR = range(0, 1_800, 10)
SEVEN_MINUTES = range(0, 420, 5)


def sample(value_at: Callable[[float], float], times: range = HALF_AN_HOUR) -> list[Sample]:
    return [(float(at), value_at(at)) for at in times]


def noisy(level: float, spread: float) -> Callable[[float], float]:
    dice = random.Random(7)
    return lambda at: level + dice.uniform(-spread, spread)


NOISE = noisy(80 * MIB, 3 * MIB)
FLAT: dict[str, Callable[[float], float]] = {
    "constant": lambda at: 80 * MIB,
    "zero": lambda at: 0.0,
    "noise": NOISE,
    "warm-up": lambda at: 80 * MIB - 30 * MIB * max(0.0, 1 - at / 500),
    "saw-tooth of 40 s": lambda at: 40 * MIB + 40 * MIB * (at % 40) / 40,
    "saw-tooth of 70 s": lambda at: 40 * MIB + 40 * MIB * (at % 70) / 70,
    "peaks": lambda at: 160 * MIB if at % 180 == 0 else 80 * MIB,
    "peak late": lambda at: 160 * MIB if 1_500 <= at <= 1_510 else 80 * MIB,
    "gaps": lambda at: 0.0 if at % 180 < 20 else 80 * MIB,
    "falls": lambda at: 80 * MIB - at * 10_000,
    "one step within noise": lambda at: 81 * MIB if at > 1_000 else 80 * MIB,
}
NOT_FLAT: dict[str, Callable[[float], float]] = {
    "100 bytes for each of 60 jobs a second": lambda at: 80 * MIB + at * 6_000,
    "the same in noise": lambda at: NOISE(at) + at * 6_000,
    "the same over a saw-tooth": lambda at: 40 * MIB + 20 * MIB * (at % 50) / 50 + at * 6_000,
    "a step in the last third": lambda at: 90 * MIB if at > 1_300 else 80 * MIB,
    "steps at restarts": lambda at: 80 * MIB + at // 180 * 2 * MIB,
    "from nothing": lambda at: at * 10_000,
    "growth that begins late": lambda at: 80 * MIB + max(0.0, at - 1_200) * 20_000,
    "a higher saw-tooth": lambda at: 80 * MIB + (20 if at > 1_200 else 5) * MIB * (at % 40) / 40,
}


@pytest.mark.parametrize("shape", FLAT)
def test_a_flat_series_is_flat(shape: str) -> None:
    verdict = judge(sample(FLAT[shape]), MEMORY)
    assert (verdict.flat, verdict.reason) == (True, "")


@pytest.mark.parametrize("shape", NOT_FLAT)
def test_what_grows_is_not_flat(shape: str) -> None:
    assert not judge(sample(NOT_FLAT[shape]), MEMORY).flat


def test_a_short_run_sees_a_kilobyte_for_each_job() -> None:
    assert not judge(sample(lambda at: 80 * MIB + at * 60_000, SEVEN_MINUTES), MEMORY).flat


@pytest.mark.parametrize(("per_second", "flat"), [(0.0, True), (0.05, True), (1.0, False)])
def test_a_row_in_a_second_that_nobody_prunes_is_seen_in_half_an_hour(per_second: float, flat: bool) -> None:
    assert judge(sample(lambda at: 1_000 + at * per_second), ROWS).flat is flat


@pytest.mark.parametrize(("per_day", "flat"), [(0.2, True), (0.4, False)])
def test_a_long_run_judges_by_the_growth_in_a_day(per_day: float, flat: bool) -> None:
    day = range(0, 86_400, 60)
    assert judge(sample(lambda at: 100 * MIB * (1 + per_day * at / 86_400), day), MEMORY).flat is flat


RESTARTS = [float(at) for at in range(180, 1_700, 180)]
CONNECTIONS = Tolerance(floor=8, share=0.05, is_reset_by_restarts=True)


def test_connections_that_leak_until_the_server_restarts_are_seen() -> None:
    leak = sample(lambda at: 14 + at % 180 * 0.2)
    assert judge(leak, CONNECTIONS).flat  # without the times of restarts nobody can see it
    assert judge(leak, CONNECTIONS, RESTARTS).reason == "grows by 36 between two restarts"


@pytest.mark.parametrize(
    "shape",
    [
        lambda at: min(34.0, 20 + at % 180 / 5),
        lambda at: 34 + (10.0 if at % 180 > 150 and at % 540 < 180 else 0.0),
        lambda at: 14.0,
    ],
)
def test_a_pool_that_fills_again_after_a_restart_is_flat(shape: Callable[[float], float]) -> None:
    assert judge(sample(shape), CONNECTIONS, RESTARTS).flat


def test_a_saw_tooth_that_restarts_do_not_reset_is_not_judged_by_them() -> None:
    assert judge(sample(lambda at: 14 + at % 180 * 0.2), Tolerance(floor=8, share=0.05), RESTARTS).flat


def test_the_verdict_says_what_it_saw() -> None:
    verdict = judge(sample(lambda at: 80 * MIB + at * MIB / 60), MEMORY)
    assert verdict.first == 80 * MIB
    assert verdict.last == pytest.approx(80 * MIB + 1_790 / 60 * MIB)
    assert verdict.slope_per_hour == pytest.approx(60 * MIB)
    assert verdict.growth_per_day == pytest.approx(24 * 60 * MIB / verdict.median)
    assert verdict.reason.startswith("grows by ")


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="23 samples are too few"):
        judge(sample(lambda at: 1.0, range(23)), ROWS)


def test_a_quarter_of_wild_samples_does_not_move_the_slope() -> None:
    samples = [(float(at), 1e9 if at % 5 == 0 else 3.0 * at) for at in range(1, 40)]
    assert find_slope(samples) == pytest.approx(3.0)
