"""Every contender by engine and name, in the order of the tables."""

from bench.contender import Contender
from bench.contenders import drumbeat_postgres, drumbeat_redis, drumbeat_sqlite
from bench.contenders.arq_redis import ArqRedis
from bench.contenders.bullmq_redis import BullmqRedis
from bench.contenders.celery_redis import CeleryRedis
from bench.contenders.dramatiq_redis import DramatiqRedis
from bench.contenders.flexiq_sqlite import FlexiqSqlite
from bench.contenders.graphile_postgres import GraphilePostgres
from bench.contenders.honker_sqlite import HonkerSqlite
from bench.contenders.huey_redis import HueyRedis
from bench.contenders.huey_sqlite import HueySqlite
from bench.contenders.pgqueuer_postgres import PgQueuerPool, PgQueuerPostgres
from bench.contenders.procrastinate_postgres import ProcrastinatePostgres
from bench.contenders.rq_redis import RqRedis
from bench.contenders.saq_postgres import SaqPostgres
from bench.contenders.saq_redis import SaqRedis
from bench.contenders.taskiq_redis import TaskiqRedis

ALL: tuple[Contender, ...] = (
    drumbeat_sqlite.DrumbeatFloor(),
    drumbeat_sqlite.DrumbeatSqlite(),
    drumbeat_sqlite.DrumbeatThreads(),
    HueySqlite(),
    FlexiqSqlite(),
    HonkerSqlite(),
    drumbeat_postgres.DrumbeatFloor(),
    drumbeat_postgres.DrumbeatPostgres(),
    drumbeat_postgres.DrumbeatThreads(),
    GraphilePostgres(),
    PgQueuerPostgres(),
    PgQueuerPool(),
    ProcrastinatePostgres(),
    SaqPostgres(),
    drumbeat_redis.DrumbeatFloor(),
    drumbeat_redis.DrumbeatRedis(),
    drumbeat_redis.DrumbeatThreads(),
    BullmqRedis(),
    CeleryRedis(),
    DramatiqRedis(),
    RqRedis(),
    HueyRedis(),
    ArqRedis(),
    SaqRedis(),
    TaskiqRedis(),
)
CONTENDERS: dict[str, dict[str, Contender]] = {
    engine: {contender.name: contender for contender in ALL if contender.engine == engine}
    for engine in ("sqlite", "postgres", "redis")
}
