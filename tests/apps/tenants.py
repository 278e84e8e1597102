"""A program with many tenants, one of which floods it."""

from drumbeat import Drumbeat, Limit
from drumbeat.clock import SYSTEM
from tests.apps import journal

AT_ONCE = 12
"""Of one tenant; four workers of four slots are 16."""

app = Drumbeat()
app.queue("tenants", fair=True)


@app.task(
    queue="tenants",
    limits=[Limit(concurrency=AT_ONCE, per_group=True)],
    group=lambda tenant, number: tenant,
    retries=3,
    on_crash="retry",
)
async def serve(tenant: str, number: int) -> None:
    journal.write("begins", tenant=tenant, number=number)
    await SYSTEM.sleep(0.01)
    journal.write("ends", tenant=tenant, number=number)
