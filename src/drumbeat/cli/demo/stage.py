"""What is there while the demo runs, and for how long: the workers, the dashboard, the play, and the time after it.

workers start > play (a quarter of a minute) > its summary > the dashboard stays, if somebody sits there > Ctrl-C
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from drumbeat.appref import flags_of
from drumbeat.cli.demo.app import app
from drumbeat.cli.demo.crew import Crew
from drumbeat.cli.demo.play import Ending, Play
from drumbeat.cli.demo.screen import DemoScreen
from drumbeat.settings import Settings

if TYPE_CHECKING:
    from drumbeat.cli.demo.board import Board

T = TypeVar("T")

WORKERS = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Curtain:
    """Falls at the first SIGINT, SIGTERM, or SIGHUP of a terminal that was closed, and ends the scene that is being played."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._scene: asyncio.Timeout | None = None

    @contextmanager
    def up(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # One that is ignored stays so: nohup.
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in heard:
            loop.add_signal_handler(number, self._fall, number)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    async def play(self, scene: Awaitable[T]) -> T | None:
        """What the scene gives; None if the curtain fell."""
        self._scene = asyncio.timeout(0 if self.signal is not None else None)
        try:
            async with self._scene:
                return await scene
        except TimeoutError:
            if self.signal is None:
                raise
            return None
        finally:
            self._scene = None

    def _fall(self, number: signal.Signals) -> None:
        if self.signal is not None:
            return
        self.signal = number
        if self._scene is not None:
            self._scene.reschedule(asyncio.get_running_loop().time())


class Stage:
    def __init__(self, folder: Path, screen: DemoScreen, *, board: Board | None, stays: bool) -> None:
        self._folder = folder
        self._screen = screen
        self._board = board
        self._stays = stays
        self._curtain = Curtain()

    async def perform(self, *, told: Callable[[Ending], None]) -> int:
        """The whole of it. `told` is called with what was seen, when the play is over. Returns the exit code."""
        flags = _flags(self._folder)
        app.configure(flags)
        with self._curtain.up():
            async with app, Crew(flags, self._folder, size=WORKERS) as crew, AsyncExitStack() as around:
                buttons = await around.enter_async_context(self._board.served(crew)) if self._board else None
                with self._screen:
                    ending = await self._curtain.play(Play(crew, self._screen).perform())
                if ending is None:
                    return self._code
                if buttons is not None:
                    buttons.is_playing = False
                told(ending)
                if self._stays:
                    await self._curtain.play(asyncio.Event().wait())
                    if self._curtain.signal is signal.SIGINT:  # else nobody may be there to read it
                        self._screen.say("Ending: the workers leave, and their files are removed.")
        # Ctrl-C is how a person ends what stays.
        return self._code if self._curtain.signal in (signal.SIGTERM, signal.SIGHUP) else int(bool(ending.problems))

    @property
    def _code(self) -> int:
        return 128 + (self._curtain.signal or signal.SIGTERM)


def _flags(folder: Path) -> dict[str, Any]:
    """Every setting, so that neither the environment nor a .env here has a say; hearts beat faster than by default."""
    return flags_of(
        Settings(
            url=f"sqlite:///{folder}/demo.db",
            name="demo",
            concurrency=8,
            batch=50,
            heartbeat=0.2,
            dead_after=2.0,
            drain=2.0,
            log_level="warning",
        )
    )
