"""How log records look to people and to programs."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from drumbeat import logs
from drumbeat.redaction import HIDDEN


@pytest.fixture
def kept() -> Iterator[None]:
    """Other tests keep the logging that they had."""
    root, ours = logging.getLogger(), logging.getLogger("drumbeat")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "drumbeat.worker", "levelname": "WARNING", "msg": message, "created": 1.5})
    vars(made).update(fields)
    return made


def test_a_text_line_has_time_level_message_and_fields() -> None:
    line = logs.TextLines().format(record("job failed", task="charge", attempt=2, took=0.123456))
    assert line == "00:00:01.500 WARNING job failed task=charge attempt=2 took=0.123"


def test_another_program_s_logger_is_named() -> None:
    shown = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "open", "created": 0.0})
    assert logs.TextLines().format(shown) == "00:00:00.000 INFO    shop: open"


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    line = logs.TextLines().format(record("job failed", error="a\nb\x1b[2J c"))
    assert line.endswith(r"error='a\nb\x1b[2J c'")
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_json_line_has_the_fields_as_they_are() -> None:
    line = json.loads(logs.JsonLines().format(record("job failed", task="charge", attempt=2)))
    assert {key: line[key] for key in ("time", "level", "message", "task", "attempt")} == {
        "time": "1970-01-01T00:00:01.500000Z",
        "level": "warning",
        "message": "job failed",
        "task": "charge",
        "attempt": 2,
    }


@pytest.mark.parametrize(
    ("created", "shown"), [(-1e30, "1970-01-01T00:00:00.000000Z"), (1e30, "9999-12-31T23:59:59.999999Z")]
)
def test_a_clock_that_was_patched_does_not_lose_the_line(created: float, shown: str) -> None:
    made = record("job failed", created=created)
    assert json.loads(logs.JsonLines().format(made))["time"] == shown
    assert logs.TextLines().format(made).startswith(shown[11:23])


ENDING = """
import asyncio, logging, uvloop
from drumbeat import logs

logs.configure("info", FORM)

async def fails():
    raise ValueError("kept by the program")

async def main():
    return asyncio.get_running_loop().create_task(fails())

loop = uvloop.new_event_loop()
kept = loop.run_until_complete(main())
loop.run_until_complete(asyncio.sleep(0))
kept.itself = kept  # destroyed when the interpreter ends
loop.close()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_record_that_is_made_while_the_interpreter_ends_is_written(form: str) -> None:
    """On Python 3.13 the process died with SIGSEGV: python/cpython#132413."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.replace("FORM", repr(form))], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "Task exception was never retrieved" in ended.stderr, ended.stderr
    assert "ValueError: kept by the program" in ended.stderr


@pytest.mark.parametrize("value", [object(), {1: 2}, "\ud800", {1, 2}])
def test_a_value_that_json_does_not_know_does_not_lose_the_line(value: object) -> None:
    assert "job failed" in json.loads(logs.JsonLines().format(record("job failed", value=value)))["message"]


def test_a_traceback_is_kept_in_both_forms() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        made = record("bug", exc_info=(ValueError, error, error.__traceback__))
    assert "ValueError: broken" in json.loads(logs.JsonLines().format(made))["traceback"]
    assert logs.TextLines().format(made).splitlines()[-1] == "ValueError: broken"


@pytest.mark.usefixtures("kept")
def test_the_level_is_obeyed_and_a_second_call_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("info", "text", first)
    logs.configure("error", "json", second)
    logging.getLogger("drumbeat.worker").warning("quiet")
    logging.getLogger("drumbeat.worker").error("loud")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "loud"


@pytest.mark.usefixtures("kept")
def test_debug_is_for_drumbeat_and_not_for_everything_below_it() -> None:
    stream = io.StringIO()
    logs.configure("debug", "text", stream)
    logging.getLogger("drumbeat.worker").debug("ours")
    logging.getLogger("asyncio").debug("theirs")
    assert "ours" in stream.getvalue()
    assert "theirs" not in stream.getvalue()


@pytest.mark.parametrize(
    "name", ["password", "db_passwd", "API_KEY", "apikey", "Authorization", "client_secret", "cookie"]
)
@pytest.mark.parametrize("lines", [logs.TextLines(), logs.JsonLines()])
def test_the_value_of_what_is_named_like_a_secret_is_hidden(name: str, lines: logging.Formatter) -> None:
    line = lines.format(record("called", **{name: "hunter2", "headers": {name: "hunter2", "accept": "json"}}))
    assert "hunter2" not in line
    assert line.count(HIDDEN) == 2
    assert "json" in line


@pytest.mark.parametrize("lines", [logs.TextLines(), logs.JsonLines()])
def test_the_password_in_a_url_is_hidden_wherever_it_stands(lines: logging.Formatter) -> None:
    url = "postgresql://ada:hunter2@db.example/app"
    try:
        raise OSError(f"cannot reach {url}")
    except OSError as error:
        shown = record(f"no answer from {url}", reason=f"{url} is gone")
        shown.exc_info = (OSError, error, error.__traceback__)
    line = lines.format(shown)
    assert "hunter2" not in line
    assert line.count("postgresql://ada:•••@db.example/app") >= 3


def test_a_fencing_token_and_a_url_without_a_password_are_no_secrets() -> None:
    line = logs.TextLines().format(record("claimed", token=42, url="sqlite:////a.db", mail="mailto:ada@example"))
    assert line.endswith("token=42 url=sqlite:////a.db mail=mailto:ada@example")
