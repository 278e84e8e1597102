"""What a handler enqueues is its child, in whichever way it does so."""

import json

from drumbeat import Drumbeat
from drumbeat.core.job import Job
from drumbeat.errors import JobError
from drumbeat.testing import Kit


async def test_a_child_knows_the_job_whose_handler_enqueued_it(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="shop")

    @app.task
    def ship(order: int) -> None:
        refund.enqueue_sync(order)

    @app.task(retries=0)
    async def refund(order: int) -> None:
        raise RuntimeError("no money")

    @refund.on_dead
    async def tell(job: Job, error: JobError) -> None: ...

    @app.task
    async def order(number: int) -> None:
        await app.enqueue_many([ship.bind(number), ship.using(key="second").bind(number)])
        await app.jobs.enqueue("ship", json.dumps({"order": number}))

    async with drumbeat(app) as kit:
        first = await order.enqueue(7)
        await kit.run_until_idle()
        assert (await app.jobs.show(first.id)).parent is None
        below = await app.jobs.lineage(first.id)
        assert [(each.depth, each.job.task) for each in below.descendants] == [
            (1, "ship"),
            (2, "refund"),
            (3, "refund.on_dead"),
        ] * 3
        last = below.descendants[-1].job
        above = await app.jobs.lineage(last.id)
        assert [job.task for job in above.ancestors] == ["order", "ship", "refund"]
        assert above.ancestors[0].id == first.id
        assert {job.id for job in await app.jobs.list(parent=first.id)} == {
            each.job.id for each in below.descendants if each.depth == 1
        }
