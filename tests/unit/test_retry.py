"""What follows a failed attempt."""

import math
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.errors import ConfigError, DrumbeatError
from drumbeat.retry import Backoff, RetryLater, Signal, SkipRetry, Snooze, parse_backoff, parse_retry_filter

UNIT = st.floats(0, 1, exclude_max=True)


@given(st.integers(0, 10_000), st.floats(0, 1e6), st.floats(0, 1e6), UNIT)
@settings(deadline=None)
def test_a_delay_lies_between_nothing_and_the_bound(n: int, one: float, other: float, dice: float) -> None:
    base, cap = sorted((one, other))
    bound = min(round(cap * 1_000_000), round(base * 1_000_000) * 2**n)
    delay = Backoff(base=base, cap=cap).delay_us(n, lambda: dice)
    assert 0 <= delay <= bound
    assert isinstance(delay, int)


def test_the_whole_range_is_used() -> None:
    backoff = Backoff(base=1, cap=30)
    almost_one = math.nextafter(1, 0)
    assert [backoff.delay_us(n, lambda: almost_one) for n in (1, 2, 3, 4, 5, 10_000)] == [
        2_000_000,
        4_000_000,
        8_000_000,
        16_000_000,
        30_000_000,
        30_000_000,
    ]
    assert Backoff(base="1us", cap=30).delay_us(40, lambda: almost_one) == 30_000_000
    assert backoff.delay_us(3, lambda: 0.0) == 0
    assert backoff.delay_us(3, lambda: 0.5) == 4_000_000


def test_a_base_of_nothing_never_waits() -> None:
    assert Backoff(base=0, cap=30).delay_us(10_000, lambda: 0.999) == 0


def test_a_list_of_delays_is_taken_as_it_is_and_its_last_one_repeats() -> None:
    backoff = parse_backoff([1, "5s", timedelta(minutes=1)])
    assert backoff == parse_backoff((1.0, 5, "1m")) == Backoff(delays=[1, 5, 60])
    assert [backoff.delay_us(n, lambda: 0.5) for n in (1, 2, 3, 4, 1_000_000)] == [
        1_000_000,
        5_000_000,
        60_000_000,
        60_000_000,
        60_000_000,
    ]
    assert str(backoff) == "1s, 5s, 1m"


def test_a_backoff_takes_lengths_as_people_write_them() -> None:
    assert Backoff(base="500ms", cap=timedelta(minutes=1)) == Backoff(base=0.5, cap=60)
    assert Backoff() == Backoff(base=1, cap=30)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"base": -1}, "Backoff.base"),
        ({"cap": "soon"}, "Backoff.cap"),
        ({"cap": math.nan}, "Backoff.cap"),
        ({"base": 60}, "Backoff.cap"),
        ({"delays": []}, "Backoff.delays"),
        ({"delays": "5m"}, "Backoff.delays"),
        ({"delays": [1, "soon"]}, "Backoff.delays"),
        ({"delays": [1, -1]}, "Backoff.delays"),
        ({"delays": [1] * 1_001}, "Backoff.delays"),
        ({"delays": [1], "base": 5}, "Backoff.delays"),
    ],
)
def test_a_bad_backoff_is_refused_naming_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field) as caught:
        Backoff(**options)
    assert caught.value.setting == field


def test_a_backoff_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Backoff().base = 5  # type: ignore[misc]


def test_there_is_no_retry_before_the_first() -> None:
    with pytest.raises(ValueError, match="no retry number -1"):
        Backoff().delay_us(-1)


@pytest.mark.parametrize("delay", [60, 60.0, "1m", timedelta(minutes=1)])
def test_a_signal_takes_its_delay_as_people_write_it(delay: timedelta | float | str) -> None:
    assert RetryLater(delay).delay_us == Snooze(delay).delay_us == 60_000_000


@pytest.mark.parametrize("signal", [RetryLater, Snooze])
def test_a_signal_refuses_a_bad_delay_by_name(signal: type[RetryLater | Snooze]) -> None:
    with pytest.raises(ConfigError, match=rf"{signal.__name__}\.delay must not be negative"):
        signal(-1)


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        (SkipRetry(), ""),
        (SkipRetry("gone"), "gone"),
        (RetryLater(90), "retry in 1m 30s"),
        (RetryLater("5m", "rate limited"), "rate limited"),
        (Snooze("1h"), "snoozed for 1h"),
    ],
)
def test_a_signal_is_no_error_of_ours_and_survives_pickle(signal: Signal, text: str) -> None:
    assert not isinstance(signal, DrumbeatError)
    twin = pickle.loads(pickle.dumps(signal))
    assert (type(twin), str(twin), vars(twin)) == (type(signal), text, vars(signal))


@pytest.mark.parametrize(
    ("retry_on", "no_retry_on", "error", "is_retried"),
    [
        (None, None, KeyboardInterrupt(), True),
        (OSError, None, ConnectionError(), True),
        (OSError, None, ValueError(), False),
        ((OSError, ValueError), None, ValueError(), True),
        (None, ValueError, ValueError(), False),
        (None, [ValueError, KeyError], UnicodeError(), False),
        (None, ValueError, OSError(), True),
        (OSError, ConnectionError, TimeoutError(), True),
        (OSError, ConnectionError, ConnectionResetError(), False),
        (OSError, OSError, OSError(), False),
        (OSError, None, ExceptionGroup("a", [OSError(), ExceptionGroup("b", [ConnectionError()])]), True),
        (OSError, None, ExceptionGroup("one of them is not", [OSError(), ValueError()]), False),
        (None, ValueError, ExceptionGroup("one of them is", [OSError(), ValueError()]), False),
        (ExceptionGroup, None, ExceptionGroup("the group itself", [ValueError()]), True),
    ],
)
def test_what_is_retried_is_told_by_class(
    retry_on: object, no_retry_on: object, error: BaseException, is_retried: bool
) -> None:
    assert parse_retry_filter(retry_on, no_retry_on).accepts(error) is is_retried


@pytest.mark.parametrize(
    ("retry_on", "no_retry_on", "is_retried"),
    [(None, None, True), (ValueError, None, False), (OSError, None, True), (None, TimeoutError, False)],
)
def test_a_run_out_of_time_counts_as_a_timeout_error(retry_on: object, no_retry_on: object, is_retried: bool) -> None:
    assert parse_retry_filter(retry_on, no_retry_on).accepts_timeout() is is_retried


@pytest.mark.parametrize("option", ["retry_on", "no_retry_on"])
@pytest.mark.parametrize(
    "wrong", ["ValueError", (), ValueError(), (ValueError, int), [None], SkipRetry, (OSError, Snooze)]
)
def test_what_is_no_class_of_exceptions_is_refused_by_the_name_of_the_option(option: str, wrong: object) -> None:
    options = {"retry_on": None, "no_retry_on": None} | {option: wrong}
    with pytest.raises(ConfigError, match=f"^{option} must ") as refused:
        parse_retry_filter(**options)
    assert refused.value.setting == option and "\n" not in str(refused.value)
