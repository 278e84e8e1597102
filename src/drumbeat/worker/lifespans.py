"""Enter and leave the program's lifespans.

One that cannot be entered ends the process before its first claim, with one line of log. One that fails while it closes is
logged, and the others are closed all the same. SystemExit of a lifespan is a failure, not the exit code of the worker.
"""

import logging
import os.path
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

from drumbeat.errors import DrumbeatError, StartFailed
from drumbeat.user_code import is_own_cancellation
from drumbeat.worker.event_loop import IN_LIFESPAN
from drumbeat.worker.result import describe_failure

log = logging.getLogger(__name__)

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def open_lifespans(lifespans: Sequence[Lifespan], companions: Sequence[Lifespan] = ()) -> AsyncIterator[None]:
    """Enter them all for the body, the worker's companions first."""
    async with AsyncExitStack() as stack:
        for companion in companions:
            await stack.enter_async_context(companion())
        for lifespan in lifespans:
            await stack.enter_async_context(GuardedLifespan(lifespan))
        yield


class GuardedLifespan:
    """One lifespan. The same task must enter and leave it."""

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan = lifespan
        self._name = getattr(lifespan, "__name__", None) or "lifespan"

    async def __aenter__(self) -> None:
        token = IN_LIFESPAN.set(True)
        try:
            self._manager = self._lifespan()
            await self._manager.__aenter__()
        except DrumbeatError:
            raise
        except BaseException as error:  # the program's own
            if is_own_cancellation(error):
                raise
            log.debug("a lifespan failed", exc_info=error)
            raise StartFailed(self._name, _describe_error(error), is_lifespan=True) from error
        finally:
            IN_LIFESPAN.reset(token)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        token = IN_LIFESPAN.set(True)
        try:
            return await self._manager.__aexit__(kind, error, trace)
        except BaseException as raised:
            if raised is error or is_own_cancellation(raised):
                raise
            log.error("a lifespan failed while it closed", exc_info=raised, extra={"lifespan": self._name})
            return None
        finally:
            IN_LIFESPAN.reset(token)


def _describe_error(error: BaseException) -> str:
    """One line with file and line number; the traceback is logged at DEBUG."""
    known = describe_failure(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{known.type}: {known.message}{where}"
