"""Takes a lock with a lease of ten minutes and says so; killed, it leaves the lock behind."""

import asyncio
import sys

from drumbeat.app import Drumbeat
from drumbeat.errors import LockTimeout

app = Drumbeat(lock_lease=600)


async def main(stays: bool) -> None:
    async with app:
        try:
            async with app.lock("printer", timeout=1):
                print("taken", flush=True)
                if stays:
                    await asyncio.sleep(600)
        except LockTimeout:
            print("not free")


if __name__ == "__main__":
    asyncio.run(main("stay" in sys.argv))
