"""Write the policies that the code declares to the store, by every instance that runs jobs, before its first claim.

    at start      limits and orders of its tasks, in the queues that it serves, and those of these queues; a task of its own
                  that has no policy any more loses its line's
    every minute  what has vanished is declared again, and what people have changed is read

A higher version replaces what a lower one declares: `version=` counts if it is made of numbers, such as 1.4.2. Of two versions
that are alike, or that are no numbers, the last instance to start decides, as for schedules. The policy of a queue stays until
a program declares another: `app.queue(name)` without options takes it back.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from drumbeat.clock import jitter
from drumbeat.controller.part import ControllerPart
from drumbeat.core.limits import LineDeclaration, LineInfo, LinePolicy
from drumbeat.errors import StoreUnavailable
from drumbeat.service import Wakeup
from drumbeat.tasks.line_policies import LineView

log = logging.getLogger(__name__)

RUN_INTERVAL = 60.0
_NUMBERS = re.compile(r"v?(\d{1,6})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:\.\d+)*")
"""At most six digits in the first: what is longer may be a hash. All together is a number that a double holds exactly."""
_STEP = 10_000


def policy_version(version: str) -> int:
    """A version as a number that orders it among others; 0: it is none of numbers."""
    found = _NUMBERS.fullmatch(version.strip())
    if found is None:
        return 0
    first, second, third = (int(number or 0) for number in found.groups())
    return (first * _STEP + second) * _STEP + third


@dataclass(eq=False, repr=False)
class LimitDeclarations(ControllerPart):
    view: LineView
    tasks: Mapping[str, str]
    """Queues of all tasks of this program that have no policy of their own."""
    version: str
    name = "limit declarations"

    def __post_init__(self) -> None:
        self._wakeup = Wakeup(self.clock)

    def wake(self) -> None:
        """Declare again now: the store may have been emptied."""
        self._wakeup.set()

    async def declare_all(self) -> None:
        """Before the first claim; waits for a store that is unavailable."""
        await self.backoff.retry(self._declare_all)

    async def run(self) -> None:
        while True:
            await self._wakeup.wait(jitter(RUN_INTERVAL))
            self._wakeup.clear()
            try:
                await self._redeclare()
            except StoreUnavailable as error:
                await self.backoff.wait(error)
            else:
                self.backoff.reset()

    async def _declare_all(self) -> None:
        lines = await self.store.limits.list_lines()
        left = [
            LineDeclaration(queue=line.queue, line=line.line, policy=LinePolicy())
            for line in lines
            if self.tasks.get(line.line) == line.queue and line.declared != LinePolicy()
        ]
        await self._declare([*self._declarations(), *left])

    async def _redeclare(self) -> None:
        lines = await self.store.limits.list_lines()
        known = {(line.queue, line.line) for line in lines}
        missing = self._declarations(without=known)
        if missing:
            await self._declare(missing)
        else:
            self._look(lines)

    def _declarations(self, without: Collection[tuple[str, str]] = ()) -> list[LineDeclaration]:
        return [
            LineDeclaration(queue=queue, line=line, policy=policy)
            for (queue, line), policy in self.view.declared.items()
            if (queue, line) not in without
        ]

    async def _declare(self, lines: list[LineDeclaration]) -> None:
        if lines:
            await self.store.limits.declare(lines, policy_version(self.version))
            self._look(await self.store.limits.list_lines())

    def _look(self, lines: Sequence[LineInfo]) -> None:
        for queue, line in self.view.update(lines):
            facts = {"queue": queue, "line": line, "version": self.version}
            log.warning(
                "limits: another version of this program declares them otherwise, and its policy holds", extra=facts
            )
