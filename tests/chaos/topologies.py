"""Which store, on which machines: `--topology NAME`. Each is a module of its own with a store for each engine that it fits."""

from tests.chaos.full_store import FullPostgres, FullRedis, FullSqlite
from tests.chaos.host_network import PostgresForHosts, RedisForHosts
from tests.chaos.lost_file import LostFile
from tests.chaos.pooler import PooledPostgres, SessionPooledPostgres
from tests.chaos.power import PoweredPostgres, PoweredSqlite
from tests.chaos.promotion import PromotedPostgres, PromotedRedis
from tests.chaos.server_clock import SteppedPostgres, SteppedRedis
from tests.chaos.stores import STORES, ChaosStore

PLAIN = "plain"
TOPOLOGIES: dict[str, dict[str, type[ChaosStore]]] = {
    PLAIN: STORES,
    "promotion": {"postgres": PromotedPostgres, "redis": PromotedRedis},
    "full": {"sqlite": FullSqlite, "postgres": FullPostgres, "redis": FullRedis},
    "clock": {"postgres": SteppedPostgres, "redis": SteppedRedis},
    "hosts": {"postgres": PostgresForHosts, "redis": RedisForHosts},
    "lost-file": {"sqlite": LostFile},
    "pooler": {"postgres": PooledPostgres},
    "pooler-session": {"postgres": SessionPooledPostgres},
    "power": {"sqlite": PoweredSqlite, "postgres": PoweredPostgres},
}


def find_store(topology: str, engine: str) -> type[ChaosStore]:
    return TOPOLOGIES[topology][engine]


def find_obstacle(topology: str, engine: str) -> str | None:
    """Why a topology cannot be run on an engine here; None: it can."""
    store = TOPOLOGIES[topology].get(engine)
    return f"there is no such thing on {engine}" if store is None else store.find_obstacle()
