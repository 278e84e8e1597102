"""Tables of all combinations of what a rule depends on: one module for each module of rules in core/."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any


def all_of(*dimensions: Iterable[object]) -> Iterator[tuple[Any, ...]]:
    """All combinations."""
    return product(*dimensions)
