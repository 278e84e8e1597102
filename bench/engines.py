"""The engines that can be measured: who runs on each, where, and in which sizes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from bench.contender import BACKLOG, BURST, CONTENTION, IDLE, SNAPSHOT, Contender
from bench.contenders import CONTENDERS
from bench.measures import Size
from bench.sites import Site


@dataclass(frozen=True, kw_only=True)
class Engine:
    title: str
    contenders: dict[str, Contender]
    site: Callable[[Path | None], AbstractContextManager[Site]]
    usual: Size
    quick: Size
    whole: Size
    """The sizes that the figures to reach are about: minutes for each contender."""
    once: frozenset[str] = frozenset()
    """Measures that take long: in the first round only, unless they were asked for by name."""


def _postgres(parent: Path | None) -> AbstractContextManager[Site]:
    from bench.postgres import PostgresSite

    return PostgresSite(parent)


def _redis(parent: Path | None) -> AbstractContextManager[Site]:
    from bench.redis import RedisSite

    return nullcontext(RedisSite(parent))


SQLITE_USUAL = Size(bulk=50_000, single=2_000, drain=1, pickups=200, scheduled=200, backlog=1_000_000, idle_seconds=10)
SQLITE_QUICK = Size(bulk=2_000, single=100, drain=0.05, pickups=20, scheduled=20, backlog=5_000, idle_seconds=1)
POSTGRES_USUAL = replace(
    SQLITE_USUAL,
    bulk=200_000,
    single=1_000,
    idle_seconds=5,
    backlog=300_000,
    burst=2,
    snapshot=1,
    contended=1_500,
    crowds=(1, 2, 4, 8),
    patience=60,
)
REDIS_USUAL = replace(POSTGRES_USUAL, bulk=100_000, single=2_000, backlog=1_000_000)

ENGINES = {
    "sqlite": Engine(
        title="SQLite",
        contenders=CONTENDERS["sqlite"],
        site=lambda parent: nullcontext(Site(parent)),
        usual=SQLITE_USUAL,
        quick=SQLITE_QUICK,
        whole=SQLITE_USUAL,
    ),
    "postgres": Engine(
        title="PostgreSQL",
        contenders=CONTENDERS["postgres"],
        site=_postgres,
        usual=POSTGRES_USUAL,
        quick=replace(SQLITE_QUICK, burst=0.1, snapshot=0.05, contended=600, crowds=(1, 2), patience=60),
        # For Drumbeat: a burst of 1 million, a minute under the snapshot, a backlog of 5 million.
        whole=replace(POSTGRES_USUAL, backlog=5_000_000, burst=10, snapshot=40, contended=5_000, patience=600),
        once=frozenset({IDLE, BURST, CONTENTION, SNAPSHOT, BACKLOG}),
    ),
    "redis": Engine(
        title="Redis (Valkey)",
        contenders=CONTENDERS["redis"],
        site=_redis,
        usual=REDIS_USUAL,
        quick=replace(SQLITE_QUICK, burst=0.1, contended=600, crowds=(1, 2), patience=60),
        whole=replace(REDIS_USUAL, burst=5, contended=5_000, patience=600),
        once=frozenset({IDLE, BURST, CONTENTION, BACKLOG}),
    ),
}
