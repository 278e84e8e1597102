"""Every contender, in the order of the table."""

from bench.contender import Contender
from bench.contenders.drumbeat_sqlite import DrumbeatFloor, DrumbeatSqlite, DrumbeatThreads
from bench.contenders.flexiq_sqlite import FlexiqSqlite
from bench.contenders.honker_sqlite import HonkerSqlite
from bench.contenders.huey_sqlite import HueySqlite

CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        DrumbeatFloor(),
        DrumbeatSqlite(),
        DrumbeatThreads(),
        HueySqlite(),
        FlexiqSqlite(),
        HonkerSqlite(),
    )
}
