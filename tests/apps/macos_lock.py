"""Takes a lock with a lease of ten minutes and says so; killed, it leaves the lock behind."""

import asyncio
import sys

from drumbeat.app import Drumbeat

app = Drumbeat(lock_lease=600)


async def main(stays: bool) -> None:
    async with app, app.lock("printer", timeout=20):
        print("taken", flush=True)
        if stays:
            await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main("stay" in sys.argv))
