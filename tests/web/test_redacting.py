"""Values of keys that are named like a secret become dots; everything else stays, to the letter."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.web.redacting import redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"to": "ada", "password": "x"}', '{"to": "ada", "password": "•••"}'),
        ('{"Api_Key":17, "n": 9007199254740993}', '{"Api_Key":"•••", "n": 9007199254740993}'),
        ('{"secret": {"a": ["}", {"b": 1}]}, "c": 1.10}', '{"secret": "•••", "c": 1.10}'),
        (
            '[{"authorization": null}, {"x": [{"cookie": "a\\"b"}]}]',
            '[{"authorization": "•••"}, {"x": [{"cookie": "•••"}]}]',
        ),
        ('{"\\u0070assword": "x"}', '{"\\u0070assword": "•••"}'),
        ('{"note": "my password: \\"x\\""}', '{"note": "my password: \\"x\\""}'),
        ('"password"', '"password"'),
        ("{}", "{}"),
    ],
)
def test_secrets_are_dots(text: str, shown: str) -> None:
    assert redacted(text) == shown


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "password", "b:", '"token"', "x"]) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=15,
)


def hidden(value: object) -> object:
    if isinstance(value, dict):
        return {key: "•••" if "password" in key or "token" in key else hidden(each) for key, each in value.items()}
    return [hidden(each) for each in value] if isinstance(value, list) else value


@given(values, st.sampled_from([None, 2]))
def test_it_is_what_decoding_and_hiding_would_give(value: object, indent: int | None) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        assert json.loads(redacted(text)) == hidden(value)


@given(st.text(alphabet='{}[]",:\\ apswordtken1'))
def test_what_is_no_json_breaks_nothing(text: str) -> None:
    assert isinstance(redacted(text), str)


@pytest.mark.parametrize(
    "text", ['{"password": "abc', '{"secret": {"a": ["abc", ', '{"token": abc', '{"token": "abc\\']
)
def test_text_that_breaks_off_shows_no_secret_either(text: str) -> None:
    assert "abc" not in redacted(text)
