"""Reset of objects in a forked child process, where the parent's threads and loops do not exist and locks may be held."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkSensitive(Protocol):
    def reset_after_fork(self) -> None:
        """Called in the child, on the one thread that it has."""
        ...


_registered: WeakSet[ForkSensitive] = WeakSet()


def reset_in_child(item: ForkSensitive) -> None:
    """Have `item.reset_after_fork()` called in every forked child, for as long as the item lives."""
    _registered.add(item)


def _reset_all() -> None:
    for item in list(_registered):
        item.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
