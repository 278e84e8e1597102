"""ControllerPart: what the services of a controller have in common."""

from dataclasses import dataclass

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import Store


@dataclass(eq=False, repr=False)
class ControllerPart:
    store: Store
    elector: Elector
    clock: Clock
    backoff: OutageBackoff
    """Of this part alone."""
