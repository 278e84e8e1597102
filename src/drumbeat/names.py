"""Validation of names, keys, numbers, option names and namespaces.

Every entry point (decorators, enqueue, settings, the CLI, the API) uses these checks, so that the stores never get a name
that one of them could not keep. Each check returns the value, or raises an error that says what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.foreign_words import OPTIONS

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
# Lower case: NN_job and nn_job are one table in SQLite, but not in PostgreSQL and Redis.
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Reserved by one engine, refused on all: a program moves to another engine by changing its URL alone.
_RESERVED_NAMESPACE = re.compile(r"sqlite.*|pg_.*|public|information_schema")
MAX_KEY_LENGTH = 200

ErrorClass = type[ConfigError] | type[InvalidArguments]


def check_name(kind: str, text: object, error: ErrorClass = InvalidArguments) -> str:
    """A name of a task, queue, schedule, lock ...; `kind` is that word, for the error."""
    if isinstance(text, str) and _NAME.fullmatch(text):
        return text
    raise error(f"{kind} {short_repr(text)} is not a valid name: use 1 to 100 letters, digits and . _ : -", kind)


def check_key(text: object, error: ErrorClass = InvalidArguments, *, kind: str = "key") -> str:
    """A key of a job, or the name of a workflow: often built from the caller's data, so any printable text. `kind` is for the
    error."""
    if isinstance(text, str) and 1 <= len(text) <= MAX_KEY_LENGTH and text.isprintable():
        return text
    size = f" (it has {len(text)})" if isinstance(text, str) and len(text) > MAX_KEY_LENGTH else ""
    raise error(
        f"{kind} {short_repr(text)} is not valid: use text of 1 to {MAX_KEY_LENGTH} printable characters{size}",
        kind.split()[-1],
    )


def check_priority(value: object, error: ErrorClass = InvalidArguments) -> int:
    """A priority: 0 runs first, 9 last."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 9:
        return int(value)
    raise error(f"priority {short_repr(value)} is not valid: use a whole number from 0 (first) to 9 (last)", "priority")


def check_number(name: str, value: object, low: int, high: int, error: ErrorClass = InvalidArguments) -> int:
    """A whole number in these bounds; `name` is the argument's."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return int(value)
    raise error(f"{name} must be a whole number from {low} to {high}, not {short_repr(value)}", name)


def check_option_names(
    kind: str, options: Collection[str], allowed: Collection[str], error: ErrorClass = ConfigError
) -> None:
    """Refuse an option that `kind`, such as `a task`, does not have."""
    if unknown := [name for name in options if name not in allowed]:
        name = min(unknown)
        ours = f"here that is {OPTIONS[name]}" if name in OPTIONS else f"use {', '.join(allowed)}"
        raise error(f"{kind} has no option {name!r}; {ours}", name)


def check_namespace(text: object, error: ErrorClass = ConfigError) -> str:
    """A namespace becomes part of table and key names, so it is stricter than a name."""
    if isinstance(text, str) and _NAMESPACE.fullmatch(text):
        if _RESERVED_NAMESPACE.fullmatch(text):
            raise error(
                f"namespace {short_repr(text)} is reserved by one of the engines: do not use public, information_schema or "
                "a name that begins with sqlite or pg_",
                "namespace",
            )
        return text
    raise error(
        f"namespace {short_repr(text)} is not valid: use 1 to 40 lower-case letters, digits and _, beginning with a letter",
        "namespace",
    )


def is_utf8(text: str) -> bool:
    """Whether it can be encoded as UTF-8. Text from other bytes, on the command line or in the environment, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def short_repr(value: object, limit: int = 60) -> str:
    """The repr of a bad value, short enough for one line of an error."""
    # Cut before repr as well: the repr of a megabyte is expensive.
    text = repr(value[:limit] if isinstance(value, str | bytes) else value)
    cut = len(text) > limit or (isinstance(value, str | bytes) and len(value) > limit)
    return text[: limit - 3] + "..." if cut else text
