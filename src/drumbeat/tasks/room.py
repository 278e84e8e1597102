"""A room: a registered function that messages call in worker processes, immediately and at most once.

Unlike a task, a call makes no job, is not retried, and has no result. The sender learns how many workers it was sent to.
`worker/room_consumer.py` makes the calls.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from drumbeat.codec import Signature
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.loop_check import awaited_on_loop, check_no_loop
from drumbeat.names import check_option_names, short_repr
from drumbeat.protocols import Enqueuer, ShareEncoder
from drumbeat.sync_loop import SYNC_LOOP

from .options import check_timeout
from .registered_function import AsyncCallable, AsyncFunction, RegisteredFunction, SyncFunction, check_function
from .registry import add_unique

if TYPE_CHECKING:
    from drumbeat.internals import AppInternals

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class RoomOptions(TypedDict, total=False):
    """What `@app.room(...)` takes."""

    name: str
    timeout: Duration | None


class Room(RegisteredFunction[P, R]):
    """A registered function. The worker reads the attributes; programs use the methods."""

    def __init__(self, client: Enqueuer, function: Callable[..., Any], name: str, timeout_us: int | None) -> None:
        super().__init__(client, function, name)
        self.timeout_us = timeout_us
        self.signature = Signature.of(function, client.codec)

    def fan_out(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, int]:
        """Split the first argument, a list, over the live workers, evenly and in order; each gets the other arguments too.

        Nine items and three workers make three each. Returns the number of workers that have taken a share; 0 if no worker is
        alive, and then nothing is stored. The share of a worker that dies before it took it goes to another. A plain
        function, as `Task.enqueue` is.

        Raises:
            SharesNotTaken: workers died before they took their shares, and no other worker is left.
        """
        return awaited_on_loop(self._fan_out(args, kwargs), f"{self.name}.fan_out", f"{self.name}.fan_out_sync")

    def fan_out_sync(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """As `fan_out`, from code without a loop."""
        return self._call_sync("fan_out", lambda: self._fan_out(args, kwargs))

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, int]:
        """Call it in every live worker, including this process if it is one. Returns how many of them are healthy."""
        sending = self._broadcast(args, kwargs)
        return awaited_on_loop(sending, f"{self.name}.broadcast", f"{self.name}.broadcast_sync")

    def broadcast_sync(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """As `broadcast`, from code without a loop."""
        return self._call_sync("broadcast", lambda: self._broadcast(args, kwargs))

    def _fan_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, int]:
        return self._enqueuer.fan_out(self.name, self.signature.hash, self._encode_shares(args, kwargs))

    def _broadcast(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, int]:
        encoded = self.signature.encode(args, kwargs, limit=self._enqueuer.settings.payload_limit)
        return self._enqueuer.broadcast(self.name, self.signature.hash, encoded)

    def _call_sync(self, method: str, send: Callable[[], Coroutine[Any, Any, int]]) -> int:
        api_name = f"{self.name}.{method}_sync"
        check_no_loop(api_name, f"await {self.name}.{method}")
        return SYNC_LOOP.run(api_name, send())

    def _encode_shares(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShareEncoder:
        if not self.signature.parameters:
            raise InvalidArguments(f"{self.name} takes no arguments: there is nothing to split; use broadcast")
        # Checks the types of all items; the size limit applies to each share.
        self.signature.encode(args, kwargs, limit=sys.maxsize)
        first = self.signature.parameters[0].name
        items = args[0] if args else kwargs.get(first)
        if not isinstance(items, list | tuple):
            raise InvalidArguments(f"fan_out splits {first}, which must be a list, not {short_repr(items)}", first)

        def encode(workers: int) -> list[str]:
            limit = self._enqueuer.settings.payload_limit
            shares = split_evenly(items, workers)
            if args:
                return [self.signature.encode((share, *args[1:]), kwargs, limit=limit) for share in shares]
            return [self.signature.encode((), kwargs | {first: share}, limit=limit) for share in shares]

        return encode


class AsyncRoom(AsyncFunction[P, R], Room[P, R]):
    """A room whose function is `async def`."""


class SyncRoom(SyncFunction[P, R], Room[P, R]):
    """A room whose function is `def`."""


class RoomDecorator(Protocol):
    """The type of `@app.room(...)` with options."""

    @overload
    def __call__(self, function: AsyncCallable[P, R], /) -> AsyncRoom[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncRoom[P, R]: ...


class RoomDecorators:
    """The part of `Drumbeat` that registers rooms."""

    _internals: AppInternals

    @overload
    def room(self, function: AsyncCallable[P, R], /) -> AsyncRoom[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def room(self, function: Callable[P, R], /) -> SyncRoom[P, R]: ...
    @overload
    def room(self, **options: Unpack[RoomOptions]) -> RoomDecorator: ...
    def room(self, *function: Any, **options: Any) -> Any:
        """Register a function that messages call in every worker at once: `fan_out(items)`, `broadcast(...)`.

        name: the room's name, instead of the function's. timeout: how long one call may take.

        Raises:
            ConfigError: an option or a parameter is not acceptable, or the name is taken; the message says where.
        """
        given = cast("RoomOptions", options)
        return (
            self._register_room(*function, options=given)
            if function
            else functools.partial(self._register_room, options=given)
        )

    def _register_room(self, function: Any, *, options: RoomOptions) -> Room[..., Any]:
        check_option_names("a room", options, RoomOptions.__annotations__)
        name = check_function("room", function, options.get("name"))
        kind: type[Room[..., Any]] = AsyncRoom if inspect.iscoroutinefunction(function) else SyncRoom
        room = kind(self._internals.client, function, name, check_timeout(options.get("timeout"), ConfigError))
        add_unique("rooms", self._internals.rooms, room)
        return room


def split_evenly(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """At most `parts` consecutive slices, none empty; their lengths differ by at most one, longer ones first."""
    length, longer = divmod(len(items), parts) if parts else (0, 0)
    slices: list[Sequence[T]] = []
    begin = 0
    for number in range(min(parts, len(items))):
        end = begin + length + (number < longer)
        slices.append(items[begin:end])
        begin = end
    return slices
