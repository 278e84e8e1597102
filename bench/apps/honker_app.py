"""honker's program."""

import honker

from bench.apps.folder import folder, ledger

db = honker.open(str(folder() / "honker.db"))
queue = db.queue("default")


# store_result=False: a no-op gives nothing to keep, and keeping it would cost honker a transaction.
@queue.task(name="stamp", store_result=False)
async def stamp(number):
    ledger.stamp(number)


@queue.task(name="stamp_wall", store_result=False)
async def stamp_wall(number):
    ledger.stamp_wall(number)
