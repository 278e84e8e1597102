"""Drumbeat's program. Where the store is, DRUMBEAT_URL says."""

from bench.apps.folder import ledger, member
from drumbeat import Drumbeat

app = Drumbeat()


@app.task
async def stamp(number: int) -> None:
    ledger.stamp(number)


@app.task
async def stamp_wall(number: int) -> None:
    ledger.stamp_wall(number)


@app.task
async def nap(number: int) -> None:
    await member.nap(number)
