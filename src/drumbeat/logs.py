"""The format of log records: text or JSON lines. For processes of our own: `drumbeat run`, and `app.run()`.

The library logs constant messages with fields (`log.warning("job failed", extra={"job": id})`). It never configures logging if
the program has done so, nor where it is a guest of the program (`serve`, enqueue).
"""

from __future__ import annotations

import codecs
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TextIO

import msgspec

from . import tracing
from .redaction import mask_urls, redact

TOKEN_FIELD = "token"
"""A fencing token of a job or a lock: not a secret, unlike other fields of this name."""
_MAX_TIME_US = 253_402_300_799_999_999
"""The last one of year 9999."""
FieldSource = Callable[[], Mapping[str, Any]]
_field_sources: list[FieldSource] = []
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, format: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Send the records of all loggers to stderr. A second call replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(_add_fields)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # DEBUG is only for Drumbeat: the debug output of drivers would drown everything else.
    logging.getLogger("drumbeat").setLevel(level.upper())
    if level != "debug":
        root.setLevel(level.upper())


class SafeLogger(logging.Logger):
    """A logger whose calls never raise: handlers and filters are the program's code."""

    def _log(self, level: int, msg: object, args: Any, *rest: Any, **options: Any) -> None:
        options["stacklevel"] = options.get("stacklevel", 1) + 1  # the caller's frame, not this one
        try:
            super()._log(level, msg, args, *rest, **options)
        except BaseException as error:
            _warn_once(error)


def protect_loggers() -> None:
    """Make our own loggers safe: from now on the program's logging cannot harm a worker."""
    for name, logger in logging.root.manager.loggerDict.items():
        if (name == "drumbeat" or name.startswith("drumbeat.")) and type(logger) is logging.Logger:
            logger.__class__ = SafeLogger


_has_warned = False


def _warn_once(error: BaseException) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        with suppress(BaseException):
            sys.stderr.write(f"drumbeat: logging fails ({type(error).__name__}): records are lost\n")


def add_field_source(source: FieldSource) -> None:
    """Add the fields that `source` returns to each record, in the context in which it is made."""
    _field_sources.append(source)


def _add_fields(record: logging.LogRecord) -> bool:
    """Runs on the thread and in the context that logs. The record's own fields win."""
    known = vars(record)
    for source in _field_sources:
        for name, value in source().items():
            known.setdefault(name, value)
    return True


def get_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields given as `extra`, with secrets redacted."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
    redacted: dict[str, Any] = redact(fields)
    if isinstance(token := fields.get(TOKEN_FIELD), int):
        redacted[TOKEN_FIELD] = token
    return redacted


class _Lines(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        try:
            return super().formatException(ei)
        except ImportError:  # the interpreter is ending: source lines can no longer be read
            return f"{ei[0].__qualname__}: {ei[1]}"


class TextLines(_Lines):
    """`09:30:00.125 WARNING job failed job=... task=charge attempt=2`, times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        name = "" if record.name.startswith("drumbeat") else f" {record.name}:"
        words = [_format_time("%H:%M:%S", record, 3), f"{record.levelname:<7}{name}", mask_urls(record.getMessage())]
        words += [f"{key}={_format_value(value)}" for key, value in get_fields(record).items()]
        # One record is one line, whatever its fields contain; only a traceback takes more.
        line = _escape_unprintable(" ".join(words))
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            # Drivers put URLs with passwords into messages and tracebacks.
            line += "\n" + "\n".join(map(_escape_unprintable, mask_urls(record.exc_text).splitlines()))
        return line


class JsonLines(_Lines):
    """One JSON object a line: time, level, logger, message, the record's fields, the current span's ids, any traceback."""

    _encoder = msgspec.json.Encoder(enc_hook=lambda value: mask_urls(str(value)))

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _format_time("%Y-%m-%dT%H:%M:%S", record, 6) + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_urls(record.getMessage()),
            "process": record.process,
        }
        # Our handler formats at once, in the context that logs.
        line |= {
            key: value for key, value in (tracing.current_trace_ids() | get_fields(record)).items() if key not in line
        }
        if record.exc_info:
            line["traceback"] = mask_urls(self.formatException(record.exc_info))
        try:
            return self._encoder.encode(line).decode()
        except (TypeError, ValueError):  # a lone surrogate, or a key that is not a string
            safe = {key: ascii(value) for key, value in line.items()}
            return self._encoder.encode(safe).decode()


def _format_time(form: str, record: logging.LogRecord, digits: int) -> str:
    """The time of a record in UTC, with a fraction of so many digits.

    Without datetime: records are made until the interpreter has ended, for example of failed tasks that the program kept, and
    Python 3.13 and 3.14 die with SIGSEGV when a timedelta is made while they end (python/cpython#132413).
    """
    us = min(max(int(record.created * 1_000_000), 0), _MAX_TIME_US)
    return f"{time.strftime(form, time.gmtime(us // 1_000_000))}.{us % 1_000_000:06d}"[: digits - 6 or None]


def _format_value(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else mask_urls(str(value))
    return repr(text) if not text or " " in text else text


def _escape(char: str) -> str:
    # Not by the name of the codec, which would be imported on first use: an interpreter that is ending imports nothing.
    return codecs.unicode_escape_encode(char)[0].decode()


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)
