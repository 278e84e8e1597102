"""`--watch`: the same query every second, its answer drawn over the one before.

On a terminal the screen is overwritten without being cleared first, so that it does not flicker. Elsewhere the answers follow
each other, separated by an empty line unless they are JSON.
"""

from __future__ import annotations

import contextlib
import functools
import io
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from drumbeat.cli.formatting import to_one_line
from drumbeat.errors import StoreUnavailable

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import CliTarget

T = TypeVar("T")

HOME, TO_END_OF_LINE, TO_END_OF_SCREEN, CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


async def watch(
    app: Drumbeat, target: CliTarget, question: Callable[[Drumbeat], Awaitable[T]], show: Callable[[T], None]
) -> None:
    """Runs until it is interrupted. A store that does not answer is reported, and asked again."""
    screen = WatchScreen(sys.stdout.isatty() and not target.json, json=target.json)
    while True:
        try:
            answer = await question(app)
        except StoreUnavailable as error:
            click.echo(f"drumbeat: {to_one_line(str(error))}", err=True)
        else:
            screen.draw(functools.partial(show, answer))
        await app._internals.clock.sleep(target.watch_interval)


class WatchScreen:
    """Draws answers, on a terminal one over the other."""

    def __init__(self, in_place: bool, *, json: bool) -> None:
        self._in_place = in_place
        self._json = json
        self._drawn = 0

    def draw(self, show: Callable[[], None]) -> None:
        first, self._drawn = not self._drawn, self._drawn + 1
        if not self._in_place:
            if not first and not self._json:
                click.echo()
            show()
            sys.stdout.flush()
            return
        drawn = _TerminalBuffer()
        with contextlib.redirect_stdout(drawn):
            show()
        # More lines than the screen has would scroll it, and the next answer would be drawn in the wrong place.
        lines = drawn.getvalue().split("\n")[: shutil.get_terminal_size().lines - 1]
        text = "".join(f"{line}{TO_END_OF_LINE}\n" for line in lines)
        sys.stdout.write(f"{CLEAR if first else ''}{HOME}{text}{TO_END_OF_SCREEN}")
        sys.stdout.flush()


class _TerminalBuffer(io.StringIO):
    """Buffers text for the terminal; rich asks it whether colours are allowed."""

    def isatty(self) -> bool:
        return True
