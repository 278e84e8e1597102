"""The list of checkers. A checker is a pure function from a history to the violations of a promise, each of which names it."""

from collections.abc import Callable, Iterator

from tests.proof.history import History

Checker = Callable[[History], Iterator[str]]
CHECKERS: list[Checker] = []


def promise(checker: Checker) -> Checker:
    CHECKERS.append(checker)
    return checker
