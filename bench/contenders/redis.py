"""What contenders on Redis have in common."""

import os
from pathlib import Path
from typing import Any

from bench.apps import URL_NAME
from bench.contender import BURST, COMMON_MEASURES, CONTENTION, Contender
from bench.peer_packages import provide_by_pip, site_packages
from bench.processes import ROOT

LOAD_MEASURES = COMMON_MEASURES | {BURST, CONTENTION}
AFTER = "acknowledged after the handler"
BEFORE = "taken out of the store before the handler: lost when the worker dies"


class RedisContender(Contender):
    engine = "redis"
    durability = AFTER
    measures = LOAD_MEASURES


class FetchedContender(RedisContender):
    """A Python library in a folder of its own, because of its pins: see bench/peer_packages.py."""

    release: str
    requirements: tuple[str, ...]

    def version(self) -> str:
        return self.release

    def load(self) -> None:
        provide_by_pip(self.distribution, self.release, self.requirements)

    def environment(self, folder: Path) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([str(site_packages(self.distribution, self.release)), str(ROOT)])}


def client() -> Any:
    """A connection of the harness's own, in the producer's process: the store is asked what is left."""
    from redis import Redis

    return Redis.from_url(os.environ[URL_NAME])
