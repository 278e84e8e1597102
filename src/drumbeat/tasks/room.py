"""A room: a registered function that messages call in the processes of workers, now and at most once.

It is no task: a call leaves no job, is not retried, and gives no result. The sender learns how many workers it was sent to.
What a room knows of the program around it is the `RoomHome` protocol; `worker/room_consumer.py` makes the calls.
"""

from __future__ import annotations

import functools
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from drumbeat.codec import Signature
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import check_name, short_repr
from drumbeat.settings import Settings

from .options import check_timeout
from .task import Task, check_loop, check_no_loop, source_location_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
ShareEncoder = Callable[[int], Sequence[str]]
"""What is sent when so many workers are in the room: arguments (JSON), at most one for each of them."""


class RoomOptions(TypedDict, total=False):
    """What `@app.room(...)` takes."""

    name: str
    timeout: Duration | None


class RoomClient(Protocol):
    """The program that a room belongs to."""

    @property
    def settings(self) -> Settings: ...

    async def broadcast(self, room: str, signature: str, args: str) -> int:
        """Send these arguments (JSON) to each living worker that is in this room; gives how many of them are healthy."""
        ...

    async def fan_out(self, room: str, signature: str, encode_shares: ShareEncoder) -> int:
        """Send a share to each healthy worker that is in this room; gives how many have one."""
        ...

    def call_sync(self, api_name: str, coroutine: Coroutine[Any, Any, T]) -> T: ...


class Room(Generic[P, R]):
    """A registered function. The worker reads the attributes; programs use the methods."""

    def __init__(self, client: RoomClient, function: Callable[..., Any], name: str, timeout_us: int | None) -> None:
        self._client = client
        self.function = function
        self.name = name
        self.timeout_us = timeout_us
        self.signature = Signature.of(function)
        self.source_location = source_location_of(function)
        self.is_async = inspect.iscoroutinefunction(function)
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    def fan_out(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, int]:
        """Split the first argument, a list, over the living workers, evenly and in order; each gets the other arguments too.

        Nine items and three workers are three each. Gives the number of workers that have taken a share: 0 if none lives;
        then nothing is kept. The share of a worker that dies before it has taken it goes to another. A plain function, as
        `Task.enqueue` is.

        Raises:
            SharesNotTaken: workers died before they took their shares, and there is nobody else to take them.
        """
        check_loop(f"{self.name}.fan_out", f"{self.name}.fan_out_sync")
        return self._send_shares(self._encode_shares(args, kwargs))

    def fan_out_sync(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """As `fan_out`, from code without a loop."""
        called = f"{self.name}.fan_out_sync"
        check_no_loop(called, f"await {self.name}.fan_out")
        return self._client.call_sync(called, self._send_shares(self._encode_shares(args, kwargs)))

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, int]:
        """Call it in every living worker, this one included if it is one. Gives the number of healthy ones among them."""
        check_loop(f"{self.name}.broadcast", f"{self.name}.broadcast_sync")
        return self._send_broadcast(self._encode(args, kwargs))

    def broadcast_sync(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """As `broadcast`, from code without a loop."""
        called = f"{self.name}.broadcast_sync"
        check_no_loop(called, f"await {self.name}.broadcast")
        return self._client.call_sync(called, self._send_broadcast(self._encode(args, kwargs)))

    async def _send_broadcast(self, args: str) -> int:
        return await self._client.broadcast(self.name, self.signature.hash, args)

    async def _send_shares(self, write: ShareEncoder) -> int:
        return await self._client.fan_out(self.name, self.signature.hash, write)

    def _encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return self.signature.encode(args, kwargs, limit=self._client.settings.payload_limit)

    def _encode_shares(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShareEncoder:
        if not self.signature.parameters:
            raise InvalidArguments(f"{self.name} takes no arguments: there is nothing to split; use broadcast")
        # All at once, for the types; the limit of size is for each share.
        self.signature.encode(args, kwargs, limit=sys.maxsize)
        first = self.signature.parameters[0].name
        items = args[0] if args else kwargs.get(first)
        if not isinstance(items, list | tuple):
            raise InvalidArguments(f"fan_out splits {first}, which must be a list, not {short_repr(items)}", first)

        def write(workers: int) -> list[str]:
            limit = self._client.settings.payload_limit
            shares = split_evenly(items, workers)
            if args:
                return [self.signature.encode((share, *args[1:]), kwargs, limit=limit) for share in shares]
            return [self.signature.encode((), kwargs | {first: share}, limit=limit) for share in shares]

        return write

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class AsyncRoom(Room[P, R]):
    """A room whose function is `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself, here and now; nothing is sent."""
        called: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return called


class SyncRoom(Room[P, R]):
    """A room whose function is `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, here and now; nothing is sent."""
        returned: R = self.function(*args, **kwargs)
        return returned


class RoomDecorator(Protocol):
    """What `@app.room(...)` with options is."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncRoom[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncRoom[P, R]: ...


class RoomRegistry:
    """All rooms of one app, by name."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room[..., Any]] = {}

    def add(self, room: Room[..., Any]) -> None:
        if (other := self._rooms.get(room.name)) is not None:
            raise ConfigError(
                f"there are two rooms named {room.name!r}: one at {other.source_location}, one at {room.source_location}; "
                "give one of them another name=",
                "name",
            )
        self._rooms[room.name] = room

    def __iter__(self) -> Iterator[Room[..., Any]]:
        return iter(self._rooms.values())


class RoomDecorators(ABC):
    """The decorator of an app that makes rooms."""

    room_registry: RoomRegistry

    @abstractmethod
    def _get_room_client(self) -> RoomClient: ...

    @property
    def registered_rooms(self) -> list[Room[..., Any]]:
        return list(self.room_registry)

    @overload
    def room(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncRoom[P, R]: ...
    @overload
    def room(self, function: Callable[P, R], /) -> SyncRoom[P, R]: ...
    @overload
    def room(self, **options: Unpack[RoomOptions]) -> RoomDecorator: ...
    def room(self, *function: Any, **options: Any) -> Any:
        """Register a function that messages call in every worker at once: `fan_out(items)`, `broadcast(...)`.

        name: what the room is called, instead of the function's name. timeout: how long one call may take.

        Raises:
            ConfigError: an option or a parameter is not acceptable, or the name is taken; it says by whom.
        """
        given = cast("RoomOptions", options)
        return (
            self._register_room(*function, options=given)
            if function
            else functools.partial(self._register_room, options=given)
        )

    def _register_room(self, function: Any, *, options: RoomOptions) -> Room[..., Any]:
        if unknown := set(options) - set(RoomOptions.__annotations__):
            raise ConfigError(f"there is no room option {min(unknown)!r}", min(unknown))
        if not callable(function) or isinstance(function, type | Task | Room):
            raise ConfigError(f"a room must be a function, not {short_repr(function)}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{function.__qualname__} is a generator: a room must return, not yield")
        name = check_name("room", options.get("name", getattr(function, "__name__", "")), ConfigError)
        kind: type[Room[..., Any]] = AsyncRoom if inspect.iscoroutinefunction(function) else SyncRoom
        room = kind(self._get_room_client(), function, name, check_timeout(options.get("timeout"), ConfigError))
        self.room_registry.add(room)
        return room


def split_evenly(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """At most so many stretches of a list, none empty, in order; their lengths differ by one at most, longer ones first."""
    length, longer = divmod(len(items), parts) if parts else (0, 0)
    stretches: list[Sequence[T]] = []
    begin = 0
    for number in range(min(parts, len(items))):
        end = begin + length + (number < longer)
        stretches.append(items[begin:end])
        begin = end
    return stretches
