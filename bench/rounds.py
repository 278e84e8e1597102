"""The order of things: a warm-up that is thrown away, then rounds in which the contenders take turns.

In each round every measure goes through all contenders before the next one begins, so that what the machine does
meanwhile meets them all; the order turns by one from round to round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.contender import Contender
from bench.measures import MEASURES, QUICK, Size
from bench.processes import ChildFailed


@dataclass
class Results:
    """Figures of all rounds: figures[contender][name] has one value for each round that gave one."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, contender: str, figures: dict[str, float]) -> None:
        rows = self.figures.setdefault(contender, {})
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)


def available(contenders: Sequence[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """Those that can be loaded here, and why the others cannot."""
    present, missing = [], {}
    for contender in contenders:
        try:
            contender.load()
        except ImportError as error:
            missing[contender.name] = str(error)
        else:
            present.append(contender)
    return present, missing


def run(
    contenders: Sequence[Contender],
    measures: Sequence[str],
    *,
    rounds: int,
    size: Size,
    parent: Path | None,
    tell: Callable[[str], None],
) -> Results:
    one_round(contenders, measures, QUICK, parent, Results(), lambda what: tell(f"warm-up: {what}"))
    results = Results()
    for number in range(rounds):
        turn = number % len(contenders)
        order = [*contenders[turn:], *contenders[:turn]]
        prefix = f"round {number + 1} of {rounds}: "
        one_round(
            order,
            measures,
            replace(size, seed=number),
            parent,
            results,
            lambda what, prefix=prefix: tell(prefix + what),
        )
    return results


def one_round(
    contenders: Sequence[Contender],
    measures: Sequence[str],
    size: Size,
    parent: Path | None,
    results: Results,
    tell: Callable[[str], None],
) -> None:
    for measure in measures:
        for contender in contenders:
            if measure not in contender.measures:
                continue
            tell(f"{measure}, {contender.name}")
            try:
                results.add(contender.name, MEASURES[measure](contender, size, parent))
            except ChildFailed as error:
                # Said in the table's foot, never left out in silence: a missing figure is a figure too.
                results.failures.append(f"{contender.name}, {measure}: {error}")
