"""Names and reasons that people give with an action."""

from __future__ import annotations

from drumbeat.errors import InvalidArguments
from drumbeat.names import short_repr

MAX_LENGTH = 200


def check_note(name: str, text: object) -> str:
    """The text, if it can be shown on one line; `name` is the argument's."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH or not text.isprintable():
        raise InvalidArguments(
            f"{name} must be at most {MAX_LENGTH} printable characters, not {short_repr(text)}", name
        )
    return text
