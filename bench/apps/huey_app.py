"""Huey's program."""

from huey import SqliteHuey

from bench.apps.folder import folder, ledger

# results=False: a no-op gives nothing to keep, and keeping it would cost Huey a write.
huey = SqliteHuey(filename=str(folder() / "huey.db"), fsync=True, results=False)


@huey.task()
def stamp(number):
    ledger.stamp(number)


@huey.task()
def stamp_wall(number):
    ledger.stamp_wall(number)
