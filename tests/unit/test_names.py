"""What names, keys, priorities and namespaces may be."""

from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import check_key, check_name, check_namespace, check_priority, short_repr


@pytest.mark.parametrize("text", ["a", "send_email", "billing:charge.v2-x", "0", "x" * 100])
def test_a_good_name_is_given_back(text: str) -> None:
    assert check_name("queue", text) == text


@pytest.mark.parametrize("text", ["", "a b", "a/b", "ä", "a\n", "\na", "x" * 101, "a\x00", None, 5, b"a"])
def test_a_bad_name_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(InvalidArguments, match=r"^queue .* is not a valid name: use 1 to 100 letters") as caught:
        check_name("queue", text)
    assert caught.value.argument == "queue"
    assert len(str(caught.value)) < 180


def test_a_bad_name_in_a_setting_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="task 'a b'") as caught:
        check_name("task", "a b", ConfigError)
    assert caught.value.setting == "task"


@pytest.mark.parametrize("text", ["a", "cust:42", "Zoë Müller 🎉", "k" * 200, "'; DROP TABLE"])
def test_a_key_may_be_any_printable_text(text: str) -> None:
    assert check_key(text) == text


@pytest.mark.parametrize("text", ["", "k" * 201, "a\nb", "a\x00", "\ud800", "a\tb", None, 42])
def test_a_bad_key_is_refused(text: object) -> None:
    with pytest.raises(InvalidArguments, match="1 to 200 printable characters") as caught:
        check_key(text)
    assert caught.value.argument == "key"


def test_a_bad_name_of_a_workflow_is_told_as_such() -> None:
    with pytest.raises(InvalidArguments, match=r"^workflow name .* is not valid: use text of 1 to 200") as caught:
        check_key("k" * 201, kind="workflow name")
    assert caught.value.argument == "name"


def test_a_key_too_long_is_told_its_length() -> None:
    with pytest.raises(InvalidArguments, match=r"\(it has 5000\)"):
        check_key("k" * 5_000)


@given(st.text(min_size=1, max_size=200))
@settings(deadline=None)
def test_every_accepted_key_is_valid_unicode_without_nul(text: str) -> None:
    try:
        check_key(text)
    except InvalidArguments:
        assert not text.isprintable()
    else:
        assert b"\x00" not in text.encode("utf-8")


class Level(IntEnum):
    HIGH = 1


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (5, 5), (9, 9), (Level.HIGH, 1)])
def test_a_priority_is_a_whole_number_from_0_to_9(value: int, expected: int) -> None:
    checked = check_priority(value)
    assert (checked, type(checked)) == (expected, int)


@pytest.mark.parametrize("value", [-1, 10, True, 5.0, "5", None])
def test_a_bad_priority_is_refused(value: object) -> None:
    with pytest.raises(InvalidArguments, match=r"from 0 \(first\) to 9 \(last\)"):
        check_priority(value)


@pytest.mark.parametrize("text", ["drumbeat", "a", "a_1", "x" * 40, "pg", "publicity"])
def test_a_good_namespace_is_given_back(text: str) -> None:
    assert check_namespace(text) == text


@pytest.mark.parametrize("text", ["", "1a", "_a", "a-b", "a.b", "x" * 41, "é", "a\n", "A", "nN", None])
def test_a_bad_namespace_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="beginning with a letter"):
        check_namespace(text)


@pytest.mark.parametrize("text", ["sqlite", "sqlite_1", "sqlitejobs", "pg_jobs", "public", "information_schema"])
def test_a_namespace_that_an_engine_keeps_for_itself_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="reserved") as caught:
        check_namespace(text)
    assert caught.value.setting == "namespace" and text in str(caught.value)


def test_a_bad_value_is_shown_short() -> None:
    assert short_repr("a\x00b") == "'a\\x00b'"
    assert len(short_repr("x" * 10**6)) <= 60
    assert short_repr("x" * 10**6).endswith("...")
    assert len(short_repr(list(range(1_000)))) <= 60
