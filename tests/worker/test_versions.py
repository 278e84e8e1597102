"""Unknown tasks and payloads of other versions: they wait, out of the way, for a worker that can take them."""

from drumbeat.app import Drumbeat
from drumbeat.core.claim import blocked_on_task, blocked_on_version
from drumbeat.core.job import JobState, NewJob
from drumbeat.ids import new_job_id
from tests.waiting import until
from tests.worker.worker_harness import run_worker


def second_app(app_url: str) -> Drumbeat:
    return Drumbeat(app_url)


async def blocked_on(app: Drumbeat, id: str) -> str | None:
    return (await app.jobs.show(id)).blocked_on


async def test_an_unknown_task_waits_until_a_worker_that_knows_it_comes(app: Drumbeat, app_url: str) -> None:
    @app.task
    async def known() -> str:
        return "known"

    other = second_app(app_url)

    @other.task
    async def newer() -> str:
        return "newer"

    async with app, other:
        async with run_worker(app):
            strange = await newer.enqueue()
            plain = await known.enqueue()
            assert await plain.result(timeout=5) == "known"
            await until(lambda: blocked_on(app, strange.id))
            assert await blocked_on(app, strange.id) == blocked_on_task("newer")
            async with run_worker(other):
                assert await strange.result(timeout=5) == "newer"
        record = await app.jobs.show(strange.id)
        assert (record.failures, record.crashes) == (0, 0)


async def test_a_payload_of_another_version_waits_for_a_worker_of_that_version(app: Drumbeat, app_url: str) -> None:
    @app.task(name="send")
    async def old(address: str) -> str:
        return f"old {address}"

    new_version = second_app(app_url)

    @new_version.task(name="send")
    async def new(address: str, subject: str) -> str:
        return f"new {address} {subject}"

    async with app, new_version:
        async with run_worker(new_version):
            job = await old.enqueue("ada")
            await until(lambda: blocked_on(app, job.id))
            assert await blocked_on(app, job.id) == blocked_on_version("send", old.signature.hash)
        async with run_worker(app):
            assert await job.result(timeout=5) == "old ada"


async def test_an_upgrade_makes_old_arguments_new(app: Drumbeat, app_url: str) -> None:
    @app.task(name="send")
    async def old(address: str) -> str:
        return ""

    new_version = second_app(app_url)

    @new_version.task(name="send")
    async def new(address: str, subject: str) -> str:
        return f"{address}: {subject}"

    @new.upgrade
    def add_subject(arguments: dict[str, object], signature: str) -> dict[str, object]:
        assert signature == old.signature.hash
        return arguments | {"subject": "hello"}

    async with app, new_version, run_worker(new_version):
        job = await old.enqueue("ada")
        assert await job.result(timeout=5) == "ada: hello"


async def test_what_no_version_can_read_is_a_dead_letter_and_stalls_no_other(app: Drumbeat) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    async with app, run_worker(app):
        store = await app._internals.store()
        bad = [
            NewJob(id=new_job_id(), task="work", queue="default", args=args, signature=signature)
            for args, signature in [("not json", "other"), ('{"n":"text"}', work.signature.hash)]
        ]
        await store.jobs.add(bad)
        assert await (await work.enqueue(1)).result(timeout=5) == 1
        for job in bad:
            await until(lambda job=job: _is_dead(app, job.id))
            letter = await app.dead.show(job.id)
            assert letter.error is not None and letter.error.type == "Undecodable"


async def _is_dead(app: Drumbeat, id: str) -> bool:
    return (await app.jobs.show(id)).state is JobState.DEAD


async def test_a_thousand_unknown_jobs_at_the_head_of_the_queue_do_not_hold_up_the_next(app: Drumbeat) -> None:
    @app.task
    async def known() -> str:
        return "known"

    async with app:
        store = await app._internals.store()
        await store.jobs.add(
            [
                NewJob(id=new_job_id(), task="nobody", queue="default", args="{}", signature="x", priority=0)
                for _ in range(1000)
            ]
        )
        async with run_worker(app):
            assert await (await known.enqueue()).result(timeout=10) == "known"
