"""Errors that Python prints because nobody could catch them: those of objects that were dropped."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_of_dropped_calls() -> Iterator[list[BaseException | None]]:
    told: list[BaseException | None] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: told.append(unraisable.exc_value)
    try:
        yield told
        gc.collect()
    finally:
        sys.unraisablehook = before
