"""The program that the files of this folder run: `drumbeat run shop:app`. Put your own in its place."""

from __future__ import annotations

from drumbeat import Drumbeat

app = Drumbeat(name="shop")


@app.task(queue="mail")
async def send_receipt(order: int) -> str:
    return f"receipt of order {order} sent"


@app.cron("0 3 * * *")
async def close_day() -> None:
    """Once a day, however many workers there are."""
