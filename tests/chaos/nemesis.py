"""Faults, drawn from a seed before the run: when, what, for how long, and chance for whom."""

import random
from typing import Any

import msgspec

STEPS = ("step clock", "step server clock")
LONG = ("nearly full", "fill disk", "fill memory", "lose file")
"""Faults whose effect must be seen while they last."""
CUTS = ("cut host", "deafen host", "mute host")
PROCESS_FAULTS = ("kill", "kill", "stop", "terminate", "kill child", "kill leader")
SINGLE_FAULTS = ("kill worker", "kill worker", "kill leader", "kill child", "restart")
"""What recovery times are promised for, one at a time."""


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    kind: str
    seconds: float
    pick: float
    """Between 0 and 1: which of those that there are."""


def draw_faults(
    seed: int, seconds: float, count: int, store_faults: tuple[str, ...], lease: float, *, share: float = 0.34
) -> list[PlannedFault]:
    """`share`: of faults of the store. They concern everybody, and hide the others, so most are of processes."""
    dice = random.Random(f"chaos {seed}")
    faults: list[PlannedFault] = []
    deck: list[str] = []
    for number in range(count):
        # Dealt, not drawn: in a short run, too, there is one of each.
        deck = deck or dice.sample(store_faults, len(store_faults))
        kind = deck.pop() if dice.random() < share else dice.choice(PROCESS_FAULTS)
        faults.append(
            PlannedFault(
                at=seconds * (number + dice.uniform(0.1, 0.9)) / count,
                kind=kind,
                seconds=_draw_seconds(dice, kind, lease),
                pick=dice.random(),
            )
        )
    return faults


def _draw_seconds(dice: random.Random, kind: str, lease: float) -> float:
    if kind == "stop" or kind in CUTS:
        return dice.choice((0.3, lease * dice.uniform(1.1, 1.5)))
    if kind in STEPS:
        return dice.choice((-1, 1)) * dice.uniform(0.5, 30.0)
    if kind in LONG:
        return dice.uniform(1.0, 4.0)
    return dice.uniform(0.2, 1.5)


def draw_single_faults(seed: int, seconds: float, store_faults: tuple[str, ...], lease: float) -> list[PlannedFault]:
    """Each is over before the next begins, so that each recovery is that of one fault."""
    dice = random.Random(f"single {seed}")
    kinds = [kind for kind in SINGLE_FAULTS if kind.startswith("kill") or kind in store_faults]
    gap = 1.6 * lease
    return [
        PlannedFault(at=gap * number, kind=dice.choice(kinds), seconds=dice.uniform(0.2, 1.5), pick=dice.random())
        for number in range(max(1, int(seconds / gap)))
    ]


def choose(items: list[Any], pick: float) -> Any:
    return items[int(pick * len(items))] if items else None
