"""Every edge, and every state and event of its parent that operations can bring about."""

from typing import NamedTuple

from drumbeat.core.dependencies import IfParentFails, ParentEvent
from tests.contract.cases import all_of

LIVES = (0, 1, 2)
PLACES = ("pending", "running", "succeeded", "letter", "discarded", "cancelled", "expired")


class EffectCase(NamedTuple):
    if_fails: IfParentFails
    edge_life: int
    event: ParentEvent
    life: int

    def path(self) -> list[tuple[ParentEvent, int]]:
        """What happens to the parent after the edge was made: its lives until then, and the event itself."""
        steps = [
            step
            for life in range(self.edge_life, self.life)
            for step in ((ParentEvent.DIED, life), (ParentEvent.REPLAYED, life + 1))
        ]
        if self.event is ParentEvent.DISCARDED:
            steps.append((ParentEvent.DIED, self.life))
        return steps if self.event is ParentEvent.REPLAYED else [*steps, (self.event, self.life)]


class JudgeCase(NamedTuple):
    if_fails: IfParentFails
    edge_life: int
    place: str
    life: int


EFFECT_CASES = [
    case
    for case in (EffectCase(*values) for values in all_of(IfParentFails, LIVES, ParentEvent, LIVES))
    if case.life >= case.edge_life + (case.event is ParentEvent.REPLAYED)
]
JUDGE_CASES = [
    case
    for case in (JudgeCase(*values) for values in all_of(IfParentFails, LIVES, PLACES, LIVES))
    if case.life >= case.edge_life
]
