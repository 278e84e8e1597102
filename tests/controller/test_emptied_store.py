"""A worker that its store knows nothing of any more says that the store was emptied; one that was taken for dead does not."""

from drumbeat.app import Drumbeat
from drumbeat.events import LeaseLost, StoreEmptied
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


async def test_a_store_that_has_no_trace_of_an_instance_was_emptied(store: Store, store_url: str) -> None:
    app = Drumbeat(store_url)
    recorder = EventRecorder(app)

    async def forget_all() -> bool:
        """Empty the tables; a heartbeat in between sees only that its instance is dead."""
        for each in await store.inspect.list_instances():
            await store.instances.declare_dead(each.id, beat=None, started=None, reason="a test")
            await store.instances.prune(await store.inspect.now() + HOUR)
        return bool(recorder.of(StoreEmptied))

    async with app, run_worker(app, heartbeat=0.2, dead_after=2):
        await until(lambda: app.instances.list(), what="an instance")
        await until(forget_all, what="an event StoreEmptied")
        await until(lambda: app.instances.list(), what="the instance, registered anew")
    assert "•••" in recorder.of(StoreEmptied)[0].url or "@" not in recorder.of(StoreEmptied)[0].url


async def test_an_instance_that_was_taken_for_dead_has_not_lost_its_store(store: Store, store_url: str) -> None:
    app = Drumbeat(store_url)
    recorder = EventRecorder(app)
    async with app, run_worker(app):
        [instance] = await until(lambda: app.instances.list(), what="an instance")
        await store.instances.declare_dead(instance.id, beat=None, started=None, reason="a test")
        await recorder.next(LeaseLost)
        await until(lambda: app.instances.list(), what="the instance, registered anew")
    assert recorder.of(StoreEmptied) == []
