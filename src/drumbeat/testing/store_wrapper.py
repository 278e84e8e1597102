"""A store each of whose calls goes through a function: to fail it, to delay it, or to write it down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from drumbeat.store.protocol import Store

PARTS = frozenset(
    {
        "jobs",
        "steps",
        "dependencies",
        "workflows",
        "instances",
        "schedules",
        "locks",
        "rooms",
        "stats",
        "inspect",
        "audit",
        "limits",
    }
)
"""The parts of a store whose operations are calls."""

StoreCall = Callable[..., Awaitable[Any]]
WrapCall = Callable[[str, StoreCall], StoreCall]
"""Given "jobs.add" and the real operation, returns what is called instead."""


class WrappedStore:
    """Everything else of the store is that of the real one."""

    def __init__(self, store: Store, wrap_call: WrapCall) -> None:
        self._store = store
        self._wrap_call = wrap_call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in PARTS:
            found = _WrappedPart(name, found, self._wrap_call)
        setattr(self, name, found)
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


class _WrappedPart:
    def __init__(self, name: str, part: Any, wrap_call: WrapCall) -> None:
        self._name = name
        self._part = part
        self._wrap_call = wrap_call

    def __getattr__(self, operation: str) -> Any:
        called = self._wrap_call(f"{self._name}.{operation}", getattr(self._part, operation))
        setattr(self, operation, called)
        return called
