"""Who did something and why, as people write it: shown wherever the thing is."""

from __future__ import annotations

from drumbeat.errors import InvalidArguments
from drumbeat.names import shown

LONGEST = 200


def note(name: str, text: object) -> str:
    """The text, or a refusal; `name` is the argument's."""
    if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable():
        raise InvalidArguments(f"{name} must be at most {LONGEST} printable characters, not {shown(text)}", name)
    return text
