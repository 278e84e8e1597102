"""Refusals of admin that mean something else over HTTP: a name in a path that nobody knows, a state that forbids an act."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from drumbeat.errors import InvalidArguments
from drumbeat.web.problem import Problem

T = TypeVar("T")


async def find_or_404(looked_up: Awaitable[T]) -> T:
    """What a path names. A name that is no name, or nobody's, is not found."""
    try:
        return await looked_up
    except InvalidArguments as error:
        raise Problem(404, str(error), argument=error.argument) from error


@contextmanager
def conflict_if_invalid() -> Iterator[None]:
    """Around an act whose only refusal is that the thing is not in a state for it."""
    try:
        yield
    except InvalidArguments as error:
        raise Problem(409, str(error), argument=error.argument) from error
