"""How log records look: lines for people, or JSON lines. For processes that are ours: `drumbeat run`, and `app.run()`.

The library logs constant texts with fields (`log.warning("job failed", extra={"job": id})`) and never configures logging
where a user's program has done so, or runs on (`serve`, enqueue): that is the user's business.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TextIO

import msgspec

from . import tracing
from .durations import from_us
from .redaction import mask_urls, redact

TOKEN_FIELD = "token"
"""Of a job or a lock: a number that only grows, and no secret."""
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
    # Only Drumbeat and the user's own program speak at this level; a driver's debugging would drown them.
    logging.getLogger("drumbeat").setLevel(level.upper())
    if level != "debug":
        root.setLevel(level.upper())


class SafeLogger(logging.Logger):
    """A logger whose calls never raise: handlers and filters are the program's own code, and what is logged has happened."""

    def _log(self, level: int, msg: object, args: Any, *rest: Any, **options: Any) -> None:
        options["stacklevel"] = options.get("stacklevel", 1) + 1  # not this frame, but its caller's
        try:
            super()._log(level, msg, args, *rest, **options)
        except BaseException as error:
            _warn_once(error)


def protect_loggers() -> None:
    """From now on nothing that the program's logging does can harm a worker. For our own loggers only."""
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
    """From now on each record also has the fields that `source` gives where the record is made."""
    _field_sources.append(source)


def _add_fields(record: logging.LogRecord) -> bool:
    """On the thread and in the context of whoever logs. What a record says of itself stays."""
    known = vars(record)
    for source in _field_sources:
        for name, value in source().items():
            known.setdefault(name, value)
    return True


def get_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, without what must be hidden from people."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
    kept: dict[str, Any] = redact(fields)
    if isinstance(fence := fields.get(TOKEN_FIELD), int):
        kept[TOKEN_FIELD] = fence
    return kept


class TextLines(logging.Formatter):
    """`09:30:00.125 WARNING job failed job=... task=charge attempt=2`, times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        moment = from_us(int(record.created * 1_000_000))
        name = "" if record.name.startswith("drumbeat") else f" {record.name}:"
        words = [f"{moment:%H:%M:%S.%f}"[:-3], f"{record.levelname:<7}{name}", mask_urls(record.getMessage())]
        words += [f"{key}={_format_value(value)}" for key, value in get_fields(record).items()]
        # One record is one line, whatever an error message or a key has in it; only a traceback takes more.
        line = _escape_unprintable(" ".join(words))
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            # URLs turn up in messages and tracebacks of drivers, with everything that is in them.
            line += "\n" + "\n".join(map(_escape_unprintable, mask_urls(record.exc_text).splitlines()))
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's fields, the current span's ids, and the traceback if
    there is one."""

    _encoder = msgspec.json.Encoder(enc_hook=lambda value: mask_urls(str(value)))

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": from_us(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_urls(record.getMessage()),
            "process": record.process,
        }
        # Asked here, in the context of whoever logs: our handler formats at once.
        line |= {
            key: value for key, value in (tracing.current_trace_ids() | get_fields(record)).items() if key not in line
        }
        if record.exc_info:
            line["traceback"] = mask_urls(self.formatException(record.exc_info))
        try:
            return self._encoder.encode(line).decode()
        except (TypeError, ValueError):  # a lone surrogate, or a key that is no text
            safe = {key: ascii(value) for key, value in line.items()}
            return self._encoder.encode(safe).decode()


def _format_value(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else mask_urls(str(value))
    return repr(text) if not text or " " in text else text


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
