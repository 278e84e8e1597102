"""A program of rude handlers: everything that code of a job can raise, return, or do to the process that it shares.

`RAISES`, `RETURNS` and `DISTURBS` are plain calls, for every pool, for rooms and subscribers; `ON_LOOP` are coroutines;
`IN_THREAD` work on the loop from beside it; `KILLS` end the process. Each says by its table how its job must end.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from drumbeat import Drumbeat, RetryLater, SkipRetry, Snooze
from drumbeat.context import Aborted, AbortReason
from drumbeat.events import JobFinished
from drumbeat.tasks import Call
from drumbeat.worker import event_loop, shutdown
from tests.apps import journal

app = Drumbeat()

HASTE = "RUDE_HASTE"
if HASTE in os.environ:
    # A worker waits 5 s, once or several times, for what handlers have left behind and what does not end.
    event_loop.LEFTOVERS_TIMEOUT = shutdown.INTERRUPT_TIMEOUT = 1.0

LEFT_BEHIND: list[Any] = []
LOOP: list[asyncio.AbstractEventLoop] = []


class Panic(BaseException):
    """As PyO3's PanicException, gevent's Timeout, pytest's outcomes: none of them is an Exception."""


class Broken(Exception):
    pass


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def call() -> NoReturn:
        raise error

    return call


def with_property(name: str) -> Callable[[], NoReturn]:
    """Raises an exception whose class raises where somebody looks at it."""

    def look(self: object) -> NoReturn:
        raise Panic(f"{name} was looked at")

    kind = type(f"Raises_{name.strip('_')}", (Exception,), {name: property(look)})
    return lambda: raising(kind("no"))()


def with_method(name: str) -> Callable[[], NoReturn]:
    def call(self: object) -> NoReturn:
        raise KeyboardInterrupt(f"{name} was called")

    kind = type(f"Raises_{name.strip('_')}", (Exception,), {name: call})
    return lambda: raising(kind("no"))()


class HostileText(str):
    def __len__(self) -> int:
        raise Panic("len")

    def replace(self, *args: Any) -> NoReturn:
        raise Panic("replace")

    def encode(self, *args: Any) -> NoReturn:
        raise Panic("encode")


class HostileMessage(Exception):
    def __str__(self) -> str:
        return HostileText("a text with a will of its own")


class Nameless(type):
    @property
    def __module__(cls) -> NoReturn:  # type: ignore[override]
        raise Panic("module")


class WithoutName(Exception, metaclass=Nameless):
    pass


class RaisesWhenDeleted:
    def __del__(self) -> None:
        raise Panic("deleted")


def recursive_cause() -> NoReturn:
    first, second = Broken("first"), Broken("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def long_chain() -> NoReturn:
    error = Broken("0")
    for number in range(5_000):
        following = Broken(str(number))
        following.__cause__ = error
        error = following
    raise error


def deep_group() -> NoReturn:
    error: Exception = Broken("the kernel")
    for _ in range(3_000):
        error = ExceptionGroup("a shell", [error])
    raise error


def recursion(depth: int = 0) -> int:
    return recursion(depth + 1)


def unpicklable() -> NoReturn:
    raise Broken(threading.Lock(), lambda: None, open)


def deletes_badly() -> NoReturn:
    kept = RaisesWhenDeleted()
    raise Broken(str(id(kept)))


def cancelled_future() -> NoReturn:
    raise asyncio.CancelledError("of its own")


SAME = Broken("the same object, again and again")

RAISES: dict[str, Callable[[], Any]] = {
    "keyboard interrupt": lambda: raising(KeyboardInterrupt())(),
    "generator exit": lambda: raising(GeneratorExit())(),
    "system exit": lambda: sys.exit(),
    "system exit 3": lambda: sys.exit(3),
    "system exit with a text": lambda: sys.exit("enough"),
    "panic": lambda: raising(Panic("called `Option::unwrap()` on a `None` value"))(),
    "bare base exception": lambda: raising(BaseException())(),
    "base exception group": lambda: raising(BaseExceptionGroup("all", [Panic("a"), KeyboardInterrupt()]))(),
    "deep exception group": deep_group,
    "cancelled error": cancelled_future,
    "memory error": lambda: raising(MemoryError())(),
    "recursion": recursion,
    "stop iteration": lambda: raising(StopIteration(1))(),
    "stop async iteration": lambda: raising(StopAsyncIteration())(),
    "odd syntax error": lambda: raising(SyntaxError("m", ("f", 1, 1, 7)))(),  # type: ignore[arg-type]
    "raising __str__": with_method("__str__"),
    "raising __repr__": with_method("__repr__"),
    "raising __notes__": with_property("__notes__"),
    "raising __cause__": with_property("__cause__"),
    "raising __context__": with_property("__context__"),
    "raising __traceback__": with_property("__traceback__"),
    "raising __suppress_context__": with_property("__suppress_context__"),
    "raising __class__": with_property("__class__"),
    "recursive cause": recursive_cause,
    "long chain": long_chain,
    "huge message": lambda: raising(Broken("m" * 5_000_000))(),
    "lone surrogate": lambda: raising(Broken("a\ud800\0b"))(),
    "hostile text": lambda: raising(HostileMessage())(),
    "no name": lambda: raising(WithoutName("who?"))(),
    "same object": lambda: raising(SAME)(),
    "unpicklable": unpicklable,
    "raising __del__": deletes_badly,
    "aborted by itself": lambda: raising(Aborted(AbortReason.DRAINING))(),
    "lease lost by itself": lambda: raising(Aborted(AbortReason.LEASE_LOST))(),
    "uninitialised snooze": lambda: raising(Snooze.__new__(Snooze))(),
    "skip retry in groups": lambda: raising(ExceptionGroup("a", [ExceptionGroup("b", [SkipRetry("no")])]))(),
    "retry later in a group": lambda: raising(ExceptionGroup("a", [RetryLater(0)]))(),
    "snooze beside an error": lambda: raising(ExceptionGroup("a", [Snooze(60), Broken("b")]))(),
    "aborted in a group": lambda: raising(BaseExceptionGroup("a", [Aborted(AbortReason.LEASE_LOST)]))(),
}
"""Each is one failed attempt."""


def never_awaited() -> Any:
    async def nobody_awaits() -> None:
        pass

    return nobody_awaits()


def recursive_list() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


class RaisesWhenRead:
    def __iter__(self) -> NoReturn:
        raise Panic("read")

    @property
    def __dict__(self) -> NoReturn:  # type: ignore[override]
        raise Panic("read")


RETURNS: dict[str, Callable[[], Any]] = {
    "a coroutine": never_awaited,
    "a generator": lambda: (number for number in range(3)),
    "a function": lambda: never_awaited,
    "not a number": lambda: float("nan"),
    "ten megabytes": lambda: "x" * 10_000_000,
    "a list in itself": recursive_list,
    "an exception": lambda: Panic("returned"),
    "a surrogate": lambda: "\ud800",
    "a lock": threading.Lock,
    "an object that raises": RaisesWhenRead,
}
"""Nothing of that can be stored: the job may have succeeded without a result, or failed."""


class RaisingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise Panic("a log record came")


def log_badly() -> None:
    logging.getLogger().addHandler(RaisingHandler())


def patch_time() -> None:
    time.time = lambda: 0.0
    time.time_ns = lambda: 0


def close_streams() -> None:
    for number in (0, 1, 2):
        try:
            os.close(number)
        except OSError:
            pass


def close_stream_objects() -> None:
    sys.stdout.close()
    sys.stdin.close()


def raise_in_threads() -> None:
    def hook(args: Any) -> NoReturn:
        raise Panic("in the hook")

    threading.excepthook = hook
    sys.unraisablehook = hook
    thread = threading.Thread(target=raising(Panic("in a thread")))
    thread.start()
    thread.join()


def exit_in_thread() -> None:
    thread = threading.Thread(target=sys.exit, args=[5])
    thread.start()
    thread.join()


def low_recursion_limit() -> None:
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    sys.setrecursionlimit(depth + 12)


def fork_and_return() -> int:
    """The copy comes back from the handler, too."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return pid


def fork_and_raise() -> None:
    pid = os.fork()
    if not pid:
        raise Panic("in the copy")
    os.waitpid(pid, 0)


def fork_and_exit() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def take_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def forget_weakly() -> None:
    LEFT_BEHIND.append(weakref.ref(RaisesWhenDeleted(), raising(Panic("collected"))))  # type: ignore[arg-type]


def clear_environment() -> None:
    for name in [name for name in os.environ if name != journal.FILE]:
        del os.environ[name]


DISTURBS: dict[str, Callable[[], Any]] = {
    "another folder": lambda: os.chdir("/"),
    "closed descriptors": close_streams,
    "closed streams": close_stream_objects,
    "a low recursion limit": low_recursion_limit,
    "a long switch interval": lambda: sys.setswitchinterval(60),
    "no garbage collection": gc.disable,
    "a patched clock": patch_time,
    "warnings as errors": lambda: warnings.simplefilter("error"),
    "log handlers that raise": log_badly,
    "hooks that raise": raise_in_threads,
    "an exit in a thread": exit_in_thread,
    "a seeded random": lambda: random.seed(0),
    "an empty environment": clear_environment,
    "ignored signals": take_signals,
    "a __del__ that raises": lambda: str(RaisesWhenDeleted()),
    "a weak reference that raises": forget_weakly,
    "a fork that returns": fork_and_return,
    "a fork that raises": fork_and_raise,
    "a fork that ends": fork_and_exit,
}
"""Each ends well; what it leaves behind must harm nobody else."""


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancel_itself_at_last() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def absorb() -> None:
    """Without uncancel(): whoever has the slot next is the one to suffer."""
    try:
        await cancel_itself()
    except asyncio.CancelledError:
        pass


async def await_cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def cancel_all() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    await asyncio.sleep(0.05)


async def cancel_all_and_itself() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0.05)


async def swallow_for_ever() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


def in_background(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def background() -> None:
        raise error

    async def call() -> None:
        LEFT_BEHIND.append(asyncio.get_running_loop().create_task(background()))
        await asyncio.sleep(0.02)

    return call


def in_callback(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        asyncio.get_running_loop().call_soon(raising(error))
        await asyncio.sleep(0.02)

    return call


async def in_done_callback() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: sys.exit(4))
    future.set_result(None)
    await asyncio.sleep(0.02)


async def in_exception_handler() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: sys.exit(6))
    loop.call_soon(raising(Broken("for the handler")))
    await asyncio.sleep(0.02)
    loop.set_exception_handler(None)


async def stop_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.02)


async def close_loop() -> None:
    asyncio.get_running_loop().close()


async def replace_task_factory() -> None:
    asyncio.get_running_loop().set_task_factory(lambda loop, coro, **options: None)  # type: ignore[arg-type]


@types.coroutine
def yield_bare(value: Any) -> Generator[Any, None, None]:
    yield value


async def yield_number() -> None:
    await yield_bare(42)


async def yield_foreign_future() -> None:
    other = asyncio.new_event_loop()
    try:
        await other.create_future()
    finally:
        other.close()


async def fork_on_loop() -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    else:
        await asyncio.sleep(60)


async def remove_signal_handlers() -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


async def leave_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise Panic("while it is closed")

    async for _ in numbers():
        break


STAIN: ContextVar[Any] = ContextVar("rude_stain")


class RaisesWhenCompared:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise Panic("compared")


async def stain_context() -> None:
    STAIN.set(RaisesWhenCompared())


async def run_nested() -> None:
    asyncio.get_running_loop().run_until_complete(asyncio.sleep(0))


async def shut_executor() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


async def unset_loop() -> None:
    asyncio.set_event_loop(None)


async def forget_background() -> None:
    LEFT_BEHIND.append(asyncio.get_running_loop().create_task(swallow_for_ever()))


ON_LOOP: dict[str, tuple[Callable[[], Awaitable[Any]], str]] = {
    "cancels itself": (cancel_itself, "dead"),
    "cancels itself at last": (cancel_itself_at_last, "dead"),
    "absorbs a cancellation": (absorb, "succeeded"),
    "awaits a cancelled future": (await_cancelled_future, "dead"),
    "cancels every task": (cancel_all, "succeeded"),
    "cancels every task and itself": (cancel_all_and_itself, "dead"),
    "swallows its time-out": (swallow_for_ever, "dead"),
    "exits in the background": (in_background(SystemExit(7)), "succeeded"),
    "is interrupted in the background": (in_background(KeyboardInterrupt()), "succeeded"),
    "panics in the background": (in_background(Panic("later")), "succeeded"),
    "exits in a callback": (in_callback(SystemExit(8)), "succeeded"),
    "is interrupted in a callback": (in_callback(KeyboardInterrupt()), "succeeded"),
    "exits in a done callback": (in_done_callback, "succeeded"),
    "exits in the exception handler": (in_exception_handler, "succeeded"),
    "stops the loop": (stop_loop, "succeeded"),
    "closes the loop": (close_loop, "dead"),
    "breaks the task factory": (replace_task_factory, "succeeded"),
    "yields a number": (yield_number, "dead"),
    "yields a future of another loop": (yield_foreign_future, "dead"),
    "forks and goes on": (fork_on_loop, "succeeded"),
    "removes signal handlers": (remove_signal_handlers, "succeeded"),
    "leaves a generator": (leave_generator, "any"),
    "stains its context": (stain_context, "succeeded"),
    "runs the loop": (run_nested, "dead"),
    "shuts the executor": (shut_executor, "succeeded"),
    "unsets the loop": (unset_loop, "succeeded"),
    "leaves a task that swallows": (forget_background, "succeeded"),
}


def stop_from_thread() -> None:
    LOOP[0].call_soon_threadsafe(LOOP[0].stop)


def exit_from_thread() -> None:
    LOOP[0].call_soon_threadsafe(sys.exit, 9)


def cancel_from_thread() -> None:
    done = threading.Event()

    def cancel() -> None:
        for task in asyncio.all_tasks(LOOP[0]):
            task.cancel()
        done.set()

    LOOP[0].call_soon_threadsafe(cancel)
    done.wait(5)


IN_THREAD: dict[str, tuple[Callable[[], Any], str]] = {
    "stops the loop from a thread": (stop_from_thread, "succeeded"),
    "exits on the loop from a thread": (exit_from_thread, "succeeded"),
    "cancels every task from a thread": (cancel_from_thread, "any"),
}

KILLS: dict[str, Callable[[], Any]] = {
    "exits at once": lambda: os._exit(0),
    "exits with a code": lambda: os._exit(3),
    "kills itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "aborts": os.abort,
    "is alarmed": lambda: [signal.setitimer(signal.ITIMER_REAL, 0.05), signal.pause()],  # type: ignore[func-returns-value]
}
"""The process is gone: a crash, and a dead letter when it has happened too often."""

PLAIN = RAISES | RETURNS | DISTURBS | KILLS


@app.lifespan
async def resources() -> AsyncIterator[None]:
    LOOP[:] = [asyncio.get_running_loop()]
    _misbehave("RUDE_LIFESPAN")
    yield
    _misbehave("RUDE_CLOSING")


@app.on_start(retries=0)
async def warm_up() -> None:
    _misbehave("RUDE_START")


def _misbehave(variable: str) -> None:
    if (kind := os.environ.get(variable)) is not None:
        PLAIN[kind]()


@app.task(queue="rude", retries=0)
async def rude_on_loop(kind: str) -> Any:
    return PLAIN[kind]()


@app.task(queue="rude", retries=0, timeout=1.5)
async def rude_loop(kind: str) -> Any:
    return await ON_LOOP[kind][0]()


@app.task(queue="rude", retries=0)
def rude_in_thread(kind: str) -> Any:
    return IN_THREAD[kind][0]() if kind in IN_THREAD else PLAIN[kind]()


@app.task(queue="rude", retries=0, pool="process")
def rude_in_process(kind: str) -> Any:
    return PLAIN[kind]()


@app.task(queue="rude", retries=0, batch=3)
async def rude_batch(calls: list[Call[str]]) -> list[Any]:
    return [PLAIN[call.value]() for call in calls]


@app.task(queue="rude", retries=0)
async def fails() -> None:
    raise Broken("so that its follow-up is called")


@fails.on_dead
async def rude_at_the_end(job: Any, error: Any) -> None:
    PLAIN[job.key]()


@app.room
async def rude_room(kind: str) -> None:
    PLAIN[kind]()


@app.room
def rude_room_in_thread(kind: str) -> None:
    PLAIN[kind]()


@app.room
async def rude_room_on_loop(kind: str) -> None:
    await ON_LOOP[kind][0]()


@app.room
async def good_room() -> None:
    journal.write("good room")


@app.task
async def told_of(kind: str) -> None:
    pass


@app.on_event(JobFinished)
def rude_subscriber(event: JobFinished) -> None:
    if event.job.task == "told_of" and event.job.key is not None:
        PLAIN[event.job.key]()


@app.on_event(JobFinished)
async def rude_async_subscriber(event: JobFinished) -> None:
    if event.job.task == "told_of" and event.job.key is not None:
        if event.job.key in ON_LOOP:
            await ON_LOOP[event.job.key][0]()
        PLAIN[event.job.key]()


@app.task(retries=5)
async def good(number: int) -> int:
    await asyncio.sleep(0.002)
    return os.getpid()


@app.task(retries=5)
def good_in_thread(number: int) -> int:
    time.sleep(0.002)
    return os.getpid()


@app.task(retries=5, pool="process")
def good_in_process(number: int) -> int:
    return os.getppid()


@app.task(retries=0, timeout=0.5)
def in_time_in_thread() -> str:
    journal.write("began")
    time.sleep(0.1)
    return "in time"


@app.task(retries=0, timeout=0.5, pool="process")
def in_time_in_process() -> str:
    journal.write("began")
    time.sleep(0.1)
    return "in time"


@app.task
async def blocks_the_loop() -> None:
    """Once another has begun, until its time is over."""
    while not journal.read(Path(os.environ[journal.FILE]), "began"):
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.03)
    time.sleep(1.0)


@app.task(retries=0)
async def holds(gate: str) -> int:
    """Runs until the file is there."""
    journal.write("holds", pid=os.getpid())
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return os.getpid()
