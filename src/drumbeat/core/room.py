"""Messages of rooms: one call of a handler in one process, delivered at most once and not kept."""

from collections.abc import Iterable

import msgspec

from drumbeat.ids import InstanceId


class RoomMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Made by the sender; the ids of one sender sort in the order of sending."""
    room: str
    to: InstanceId
    args: str
    """JSON object text, as in NewJob."""
    signature: str
    """Hash of the handler's signature at the sender."""


MAX_HINT_NAMES = 100


def encode_hint(messages: Iterable[RoomMessage]) -> str:
    """The receivers as a text that fits into a notification of every engine; empty: too many to name."""
    names = sorted({message.to for message in messages})
    return " ".join(names) if len(names) <= MAX_HINT_NAMES else ""


def decode_hint(text: str) -> list[str]:
    """The receivers that a hint names; one empty name: any instance."""
    return text.split() or [""]
