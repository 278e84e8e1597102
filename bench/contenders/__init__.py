"""Every contender by engine and name, in the order of the tables."""

from bench.contender import Contender
from bench.contenders import drumbeat_postgres, drumbeat_sqlite
from bench.contenders.flexiq_sqlite import FlexiqSqlite
from bench.contenders.graphile_postgres import GraphilePostgres
from bench.contenders.honker_sqlite import HonkerSqlite
from bench.contenders.huey_sqlite import HueySqlite
from bench.contenders.pgqueuer_postgres import PgQueuerPool, PgQueuerPostgres
from bench.contenders.procrastinate_postgres import ProcrastinatePostgres
from bench.contenders.saq_postgres import SaqPostgres

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
)
CONTENDERS: dict[str, dict[str, Contender]] = {
    engine: {contender.name: contender for contender in ALL if contender.engine == engine}
    for engine in ("sqlite", "postgres")
}
