"""The order of things: a warm-up that is thrown away, then rounds in which the contenders take turns.

In each round every measure goes through all contenders before the next one begins, so that what the machine does
meanwhile meets them all; the order turns by one from round to round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.catalogue import MEASURES
from bench.contender import Contender
from bench.engines import Engine
from bench.measures import Size
from bench.processes import ChildFailed
from bench.sites import Site


@dataclass
class Results:
    """Figures of all rounds: figures[contender][name] has one value for each round that gave one."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each measure took, all contenders and rounds together."""
    late: list[str] = field(default_factory=list)
    """Measures that were not begun, because the time was up."""

    def add(self, contender: str, figures: dict[str, float]) -> None:
        rows = self.figures.setdefault(contender, {})
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)


def find_available(contenders: Sequence[Contender]) -> tuple[list[Contender], dict[str, str]]:
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
    engine: Engine,
    contenders: Sequence[Contender],
    measures: Sequence[str],
    *,
    rounds: int,
    size: Size,
    site: Site,
    deadline: float,
    tell: Callable[[str], None],
) -> Results:
    """Without measures: all of them, the long ones in the first round only. After the deadline nothing is begun."""
    results = Results()
    chosen = measures or list(MEASURES)
    repeated = measures or [name for name in chosen if name not in engine.once]
    # A quick run is a warm-up itself.
    for number in range(0 if size is engine.quick else -1, rounds):
        size_now = engine.quick if number < 0 else replace(size, seed=number)
        turn = max(number, 0) % len(contenders)
        prefix = "warm-up: " if number < 0 else f"round {number + 1} of {rounds}: "
        one_round(
            [*contenders[turn:], *contenders[:turn]],
            chosen if number == 0 else repeated,
            size_now,
            site,
            Results() if number < 0 else results,
            lambda what, prefix=prefix: tell(prefix + what),
            deadline,
        )
    return results


def one_round(
    contenders: Sequence[Contender],
    measures: Sequence[str],
    size: Size,
    site: Site,
    results: Results,
    tell: Callable[[str], None],
    deadline: float,
) -> None:
    for measure in measures:
        for contender in contenders:
            if measure not in contender.measures:
                continue
            if time.monotonic() > deadline:
                results.late.append(f"{contender.name} {measure}")
                continue
            tell(f"{measure}, {contender.name}")
            began = time.monotonic()
            try:
                results.add(contender.name, MEASURES[measure](contender, size, site))
            except ChildFailed as error:
                # Said in the table's foot, never left out in silence: a missing figure is a figure too.
                results.failures.append(f"{contender.name}, {measure}: {error}")
            results.seconds[measure] = results.seconds.get(measure, 0) + time.monotonic() - began
