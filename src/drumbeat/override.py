"""`app.override(...)`: for the length of a block an app has another store, clock or settings. For tests and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from drumbeat.errors import ConfigError, WrongContext
from drumbeat.sync_loop import SYNC_LOOP

if TYPE_CHECKING:
    from drumbeat.clock import Clock
    from drumbeat.internals import AppInternals


class Override:
    """`with` or `async with`. They nest; each restores what was before it."""

    def __init__(self, internals: AppInternals, flags: Mapping[str, object], clock: Clock | None) -> None:
        self._internals = internals
        self._flags = flags
        self._clock = clock
        self._before: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        if self._before is not None:
            raise ConfigError("this override has been entered already: make another one by app.override(...)")
        self._check_closed("before the block")
        self._before = self._internals.begin_override(self._flags, self._clock)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with suppress(WrongContext):  # on a loop's own thread: its code closes what it opened
            SYNC_LOOP.run("app.override", self._internals.close())
        self._end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._internals.close_with_sync()
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        before, self._before = self._before, None
        assert before is not None
        try:
            if error is None:
                self._check_closed("at the end of the block (in async code: `async with app.override(...)`)")
        finally:
            self._internals.end_override(before)

    def _check_closed(self, when: str) -> None:
        if self._internals.client.loop_stores.is_open:
            raise ConfigError(
                f"app.override: a connection of this app is open, and stays with the store it belongs to; close it {when}"
                " with `await app.close()` or `app.sync.close()`"
            )
