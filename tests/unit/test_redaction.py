"""What is hidden from people is hidden everywhere, in linear time, whatever the text is."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat import durations, logs
from drumbeat.cli import formatting
from drumbeat.codec.limits import is_deeper
from drumbeat.core.job import Failure
from drumbeat.errors import ConfigError
from drumbeat.redaction import HIDDEN, format_error, is_secret, mask_url, mask_urls, redact, redact_json
from drumbeat.store.urls import parse
from drumbeat.web.pages.formatting import format_json
from drumbeat.web.pages.search_query import _PAIR

SECRET_NAMES = [
    "password", "passwd", "PGPASSWORD", "db_pwd", "passphrase", "secret", "client_secret", "token", "refresh_token",
    "accessToken", "bearer", "Bearer-Token", "api-key", "apiKey", "X_API_KEY", "authorization", "Authorisation",
    "set-cookie", "credentials", "private.key", "access key", "signingKey", "encryption_key", "paſsword",
]  # fmt: skip
PLAIN_NAMES = ["name", "to", "key", "primary_key", "keyboard", "author", "to_ken_burns_not", "pass", "id"]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
    assert "hunter2" not in str(redact({name: "hunter2", "rows": [{name: ["hunter2"]}, ({name: {"a": "hunter2"}},)]}))
    assert "hunter2" not in redact_json(json.dumps({name: "hunter2", "a": [{name: {"b": "hunter2"}}]}))
    assert "hunter2" not in formatting.format_arguments(json.dumps({"rows": [{name: "hunter2"}]}))


@pytest.mark.parametrize("name", [name for name in PLAIN_NAMES if name != "to_ken_burns_not"])
def test_other_names_are_shown(name: str) -> None:
    assert not is_secret(name)
    assert redact({name: "shown"}) == {name: "shown"}


@pytest.mark.parametrize("lines", [logs.TextLines(), logs.JsonLines()])
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_no_log_line_shows_a_secret_in_whatever_it_is_wrapped(name: str, lines: logging.Formatter) -> None:
    record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "called", "created": 0.0})
    text = json.dumps({name: "hunter2"})
    vars(record).update({"rows": [{name: "hunter2"}, ({name: "hunter2"},)], "body": text, name: "hunter2"})
    line = lines.format(record)
    assert "hunter2" not in line
    assert line.count(HIDDEN) == 4


class Login(msgspec.Struct):
    user: str
    password: str


@dataclass
class Account:
    user: str
    token: str


@pytest.mark.parametrize("value", [Login("ada", "hunter2"), Account("ada", "hunter2")])
@pytest.mark.parametrize("lines", [logs.TextLines(), logs.JsonLines()])
def test_records_in_a_log_line_are_looked_into(value: object, lines: logging.Formatter) -> None:
    record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "called", "created": 0.0})
    record.who = [value]
    line = lines.format(record)
    assert ("hunter2" in line, "ada" in line) == (False, True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:hunter2@db/app", "postgresql://ada:•••@db/app"),
        ("postgresql://ada:hun/ter2@db:5432/app", "postgresql://ada:•••@db:5432/app"),
        ("postgresql://ada:hun#ter2@db/app", "postgresql://ada:•••@db/app"),
        ("postgresql://ada:hun?ter2@db/app", "postgresql://ada:•••@db/app"),
        ("postgresql://ada:h@un:ter2@db/app", "postgresql://ada:•••@db/app"),
        ("redis://:hunter2@host:6379/0", "redis://:•••@host:6379/0"),
        (
            "postgresql://ada@db/app?password=hunter2&sslmode=require",
            "postgresql://ada@db/app?password=•••&sslmode=require",
        ),
        ("postgresql://db/app?sslpassword=hun#ter2", "postgresql://db/app?sslpassword=•••"),
        ("postgresql://db/app?sslmode=x;password=hun&ter2", "postgresql://db/app?sslmode=x;password=•••"),
        ("postgresql://ada:a@db/app?password=hun@ter2", "postgresql://ada:•••"),
        ("http://[::1:hunter2@db", "http://[:•••@db"),
        ("ada:hunter2@db", "ada:•••@db"),
        ("hunter2@db", "•••@db"),
        ("host=db user=ada password=hunter2", "host=db user=ada password=•••"),
        ("postgresql://ada@db/app", "postgresql://ada@db/app"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("", ""),
    ],
)
def test_passwords_in_urls_are_hidden_and_the_rest_is_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert mask_url(shown) == shown


passwords = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda text: f"<{text}>")
URLS = [
    "postgresql://ada:{}@db:5432/app", "redis://:{}@host/0", "unix://:{}@/run/redis.sock", "ada:{}@host",
    "postgresql://db/app?password={}", "postgresql://ada:x@db/app?a=b&sslpassword={}&c=d", "rediss://h/0?ssl_password={}#x",
]  # fmt: skip


@given(passwords, st.sampled_from(URLS))
def test_whatever_a_password_is_made_of_no_part_of_it_is_shown(password: str, url: str) -> None:
    # Behind an `&name=` begins another parameter: that must be quoted to be part of a password.
    password = password.replace("=", "")
    masked_url = mask_url(url.format(password))
    assert "<" not in masked_url
    assert ">" not in masked_url


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1), st.sampled_from(URLS[:3]))
def test_nor_in_running_text(password: str, url: str) -> None:
    text = mask_urls(f"cannot reach {url.format(f'<{password}>')} now: {url.format(f'<{password}>')}")
    assert ("<" in text, ">" in text) == (False, False)
    assert text.startswith("cannot reach ")


TORN = ["hun/ter2", "hun#ter2", "hun?ter2", "12/ter2", "12#ter2", "12?ter2", "hun?ter2=x", "[hunter2", "h/un@ter2"]


@pytest.mark.parametrize("password", TORN)
@pytest.mark.parametrize("scheme", ["mysql", "sqlite", "postgresql", "redis"])
def test_a_url_that_its_password_tears_apart_is_refused_without_a_part_of_it(scheme: str, password: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"{scheme}://ada:{password}@db/app")
    assert not any(part in str(refused.value) for part in ("hun", "ter2", "12"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hun%2Fter2@db:5432/app?application_name=a@b",
        "postgresql://h1:5432,h2:5433/app?user=a@b",
        "redis://[::1]:6379/0?client_name=a@b",
        "postgresql:///app?host=/run/postgresql",
        "unix:///run/redis.sock",
    ],
)
def test_a_url_in_order_is_taken(url: str) -> None:
    assert parse(url).text == url


values = st.text(max_size=5) | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from(["a", "password", "b"]), values, max_size=3), st.data())
def test_a_secret_that_is_cut_off_is_hidden(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps({"x": [value], "password": {"deep": ["hunter2", "hunter2"]}, "url": "redis://:hunter2@h/0"})
    cut = data.draw(st.integers(0, len(text)))
    shown = redact_json(text[:cut])
    assert not any("hunter2"[:n] in shown for n in range(3, 8))


MEGABYTE = 1_000_000
HOSTILE: dict[str, Callable[[], object]] = {
    "escaped quotes": lambda: redact_json("token" + '"' + '\\"' * (MEGABYTE // 2)),
    "quotes": lambda: redact_json("token" + '"' * MEGABYTE),
    "nested": lambda: redact_json('{"token":' + "{" * MEGABYTE),
    "nested and open": lambda: redact_json('{"token":' * (MEGABYTE // 9)),
    "spaces": lambda: redact_json(('"token"' + " " * 1_000) * 1_000),
    "backslashes": lambda: redact_json('"token\\u' + "\\" * MEGABYTE),
    "urls": lambda: mask_urls("://a:b@" * (MEGABYTE // 7)),
    "many urls": lambda: mask_urls("a://u:p@h " * (MEGABYTE // 10)),
    "parameters": lambda: mask_urls("a://h?" + "&token=" * (MEGABYTE // 7)),
    "no parameters": lambda: mask_urls("a://h?" + "a-" * (MEGABYTE // 2)),
    "no parameter follows": lambda: mask_urls("a://h?token=" + "&a" * (MEGABYTE // 2)),
    "pretty": lambda: format_json('"' + '\\"' * 9_000),
    "search line": lambda: _PAIR.findall("a" * 8_000),
    "depth of broken JSON": lambda: is_deeper(b"[" * 200 + b'"' + b'\\"' * (MEGABYTE // 2), 100),
    "names of arguments": lambda: formatting.format_arguments('{"a":"' + '\\"' * (MEGABYTE // 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name: str) -> None:
    began = time.process_time()
    HOSTILE[name]()
    # Most take some 10 ms, the quadratic ones took minutes.
    assert time.process_time() - began < 5.0


def test_a_length_of_time_is_read_in_no_time() -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        durations.microseconds("1d" + " " * 57 + "x", name="delay")
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    ("type_name", "message", "shown"),
    [
        ("builtins.ValueError", "bad amount", "ValueError: bad amount"),
        ("app.Refused", "", "Refused"),
        (
            "OSError",
            "no route to redis://ada:hunter2@db/0 today",
            f"OSError: no route to redis://ada:{HIDDEN}@db/0 today",
        ),
        ("Refused", '{"token": "hunter2"}', f'Refused: {{"token": "{HIDDEN}"}}'),
    ],
)
def test_an_error_is_shown_on_one_line_without_secrets(type_name: str, message: str, shown: str) -> None:
    assert format_error(Failure(type_name, message)) == shown


def test_an_error_is_redacted_before_it_is_truncated() -> None:
    text = format_error(Failure("OSError", "redis://ada:hunter2@db/0"), limit=len("OSError: redis://ada:hunter2"))
    assert "hunter" not in text and len(text) == 28
