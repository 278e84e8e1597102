"""What a room's message is: one call of its handler in one process. It is given once, and nobody keeps it after that."""

from collections.abc import Iterable

import msgspec

from drumbeat.ids import InstanceId


class RoomMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Made by the sender, one for each message; those of one sender sort in the order in which they were made."""
    room: str
    to: InstanceId
    args: str
    """JSON, as a job's."""
    signature: str
    """The hash of the signature by which the sender wrote `args`."""


MAX_HINT_NAMES = 100


def encode_hint(messages: Iterable[RoomMessage]) -> str:
    """For whom these are, in a text that fits into every engine's hint: nothing, when they are for very many."""
    names = sorted({message.to for message in messages})
    return " ".join(names) if len(names) <= MAX_HINT_NAMES else ""


def decode_hint(text: str) -> list[str]:
    """The instances that a hint names; one empty name when it is for anybody."""
    return text.split() or [""]
