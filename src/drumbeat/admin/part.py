"""The base of the parts of the administration API, and the check of what people write about an action."""

from __future__ import annotations

from drumbeat.client import Client
from drumbeat.errors import InvalidArguments
from drumbeat.names import short_repr

MAX_NOTE_LENGTH = 200


class AdminPart:
    def __init__(self, client: Client) -> None:
        self._client = client

    def _check_by(self, by: str | None) -> str:
        """Who acts; by default the app, by its name."""
        return check_note("by", self._client.settings.name if by is None else by)


def check_note(name: str, text: object) -> str:
    """The text, if it can be shown on one line; `name` is the argument's."""
    if not isinstance(text, str) or len(text) > MAX_NOTE_LENGTH or not text.isprintable():
        raise InvalidArguments(
            f"{name} must be at most {MAX_NOTE_LENGTH} printable characters, not {short_repr(text)}", name
        )
    return text
