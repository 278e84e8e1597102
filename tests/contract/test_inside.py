"""Jobs inside a transaction of the program's own: stored with its commit, completed with its commit, refused as a whole."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, CompletedJob
from drumbeat.core.job import AddResult, CancelAnswer, Job, JobState, OutcomeKind, Unique
from drumbeat.errors import ClaimLost, InvalidArguments, JobNotFound
from drumbeat.ids import new_instance_id, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.urls import transactional_for
from tests.callers import Caller, caller
from tests.conftest import TRANSACTIONAL, OpenAgain
from tests.contract.making import claim, claimed_one, end, hold, ids, new_job, outcome, report, worker
from tests.waiting import until


@pytest.fixture(params=TRANSACTIONAL)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def program(store: Store, store_url: str) -> AsyncIterator[Caller]:
    async with caller(store_url) as made:
        yield made


async def complete(store: Store, program: Caller, instance: str, job: ClaimedJob, **facts: Any) -> None:
    facts = {"started_at": job.token, "result": None, "result_error": None} | facts
    await store.transactional.complete(program.conn, CompletedJob(instance=instance, claim=hold(job), **facts))  # type: ignore[arg-type]


async def state(store: Store, job: ClaimedJob) -> JobState:
    return (await get_job(store, job.id)).state


async def exists(store: Store, id: Any) -> bool:
    try:
        return isinstance(await get_job(store, id), Job)
    except JobNotFound:
        return False


async def test_a_job_is_visible_after_the_commit_and_not_before(store: Store, program: Caller) -> None:
    job, instance = new_job(parent=new_job_id()), await worker(store)
    await program.begin()
    await program.write(1)
    assert await store.transactional.add(program.conn, [job]) == [AddResult(job.id, True)]
    assert (await exists(store, job.id), await claim(store, instance)) == (False, [])
    await program.commit()
    assert ids(await claim(store, instance)) == [job.id]
    assert (await get_job(store, job.id)).parent == job.parent
    assert await program.numbers() == [1]


async def test_a_job_is_gone_after_a_rollback(store: Store, program: Caller) -> None:
    job, instance = new_job(), await worker(store)
    await program.begin()
    await program.write(1)
    await store.transactional.add(program.conn, [job])
    await program.rollback()
    assert (await exists(store, job.id), await claim(store, instance), await program.numbers()) == (False, [], [])


async def test_a_job_keeps_everything_it_was_given(store: Store, program: Caller) -> None:
    options: dict[str, Any] = {
        "queue": "critical",
        "args": '{"text":"ä \\" \\\\ \\u2028 😀"}',
        "priority": 2,
        "run_at": 2_000_000_000_000_000,
        "key": "k'\\\"ä",
        "unique": Unique.PENDING,
        "retries": 0,
        "timeout": 5_000_000,
        "crash_limit": 1,
        "on_dead": "greet.on_dead",
        "group": "t",
        "expires": 7_000_000,
    }
    inside, usual = new_job(**options), new_job(**(options | {"key": "other"}))
    await program.begin()
    await store.transactional.add(program.conn, [inside])
    await program.commit()
    await store.jobs.add([usual])
    one, two = await get_job(store, inside.id), await get_job(store, usual.id)
    fields = [name for name in Job.__struct_fields__ if name not in {"id", "key", "created_at"}]
    assert {name: getattr(one, name) for name in fields} == {name: getattr(two, name) for name in fields}
    assert (one.key, one.timeout, one.retries) == ("k'\\\"ä", 5.0, 0)
    assert one.expires_at is not None and (one.expires_at - one.due_at).total_seconds() == 7


async def test_a_delay_counts_from_the_stores_now(store: Store, program: Caller) -> None:
    job = new_job(delay=60_000_000)
    before = await store.inspect.now()
    await program.begin()
    await store.transactional.add(program.conn, [job])
    await program.commit()
    due = (await get_job(store, job.id)).run_at.timestamp() * 1e6
    assert before + 60_000_000 <= due + 1 and due <= await store.inspect.now() + 60_000_001


async def test_an_id_that_is_anywhere_is_not_stored_again(store: Store, program: Caller) -> None:
    instance = await worker(store)
    live = new_job()
    done, dead = await claimed_one(store, instance), await claimed_one(store, instance)
    await end(store, instance, done, OutcomeKind.SUCCEEDED)
    await end(store, instance, dead, OutcomeKind.DEAD)
    await store.jobs.add([live])
    fresh = new_job()
    again = [new_job(id=each) for each in (live.id, done.id, fresh.id, dead.id, fresh.id)]
    await program.begin()
    answers = await store.transactional.add(program.conn, again)
    await program.commit()
    assert [answer.created for answer in answers] == [False, False, True, False, False]
    assert [answer.id for answer in answers] == [job.id for job in again]
    assert sorted(ids(await claim(store, instance))) == sorted([live.id, fresh.id])


async def test_a_unique_key_that_is_held_gives_the_holder(store: Store, program: Caller) -> None:
    instance = await worker(store)
    running = await claimed_one(store, instance, key="a", unique=Unique.LIVE)
    waiting = new_job(key="b", unique=Unique.PENDING)
    await store.jobs.add([waiting])
    wanted = [
        new_job(key="a", unique=Unique.LIVE),
        new_job(key="a", unique=Unique.PENDING),
        new_job(key="b", unique=Unique.LIVE),
        new_job(key="c", unique=Unique.LIVE),
        new_job(key="c", unique=Unique.LIVE),
        new_job(key="c"),
        new_job(task="other", key="c", unique=Unique.LIVE),
    ]
    await program.begin()
    answers = await store.transactional.add(program.conn, wanted)
    await program.commit()
    assert [answer.created for answer in answers] == [False, True, False, True, False, True, True]
    assert [answers[at].id for at in (0, 2, 4)] == [running.id, waiting.id, wanted[3].id]


async def test_two_transactions_of_one_program_share_a_unique_key(store: Store, program: Caller) -> None:
    first, second = (new_job(key="a", unique=Unique.LIVE) for _ in range(2))
    for job, created in ((first, True), (second, False)):
        await program.begin()
        [answer] = await store.transactional.add(program.conn, [job])
        await program.commit()
        assert answer == AddResult(first.id, created)


async def test_a_big_batch_is_stored_as_a_whole(store: Store, program: Caller) -> None:
    instance = await worker(store)
    jobs = [new_job(args=f'{{"n":{n}}}') for n in range(3_000)]
    await program.begin()
    answers = await store.transactional.add(program.conn, jobs)
    await program.commit()
    assert answers == [AddResult(job.id, True) for job in jobs]
    assert sorted(ids(await claim(store, instance, limit=5_000))) == sorted(job.id for job in jobs)


async def test_nothing_to_add_is_nothing_done(store: Store, program: Caller) -> None:
    assert await store.transactional.add(program.conn, []) == []


async def test_no_open_store_is_needed(store: Store, store_url: str, program: Caller) -> None:
    job = new_job()
    await program.begin()
    await transactional_for(store_url).add(program.conn, [job])
    await program.commit()
    assert await exists(store, job.id)


async def test_workers_hear_of_the_commit(store: Store, program: Caller, open_again: OpenAgain) -> None:
    other = await open_again()
    heard: list[int] = []
    async with other.wake.listen(Subscriber(heard.append)):
        await program.begin()
        await store.transactional.add(program.conn, [new_job()])
        heard.clear()
        await program.commit()
        await until(lambda: heard, deadline=5, what="a hint")


async def test_an_unknown_kind_of_connection_is_refused_with_those_that_work(store: Store) -> None:
    with pytest.raises(InvalidArguments, match=r"conn is a builtins\.dict; .* SQLAlchemy"):
        await store.transactional.add({}, [new_job()])
    with pytest.raises(InvalidArguments, match="conn is a"):
        store.transactional.add_sync("connection", [new_job()])


async def test_the_job_and_the_writes_of_its_transaction_are_committed_together(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await program.write(1)
    await complete(store, program, instance, job, result='{"total":1}')
    assert (await state(store, job), await program.numbers()) == (JobState.RUNNING, [])
    await program.commit()
    record = await get_job(store, job.id)
    assert (record.state, record.result, record.token) == (JobState.SUCCEEDED, '{"total":1}', job.token)
    assert record.started_at is not None and record.finished_at is not None and record.instance == instance
    assert await program.numbers() == [1]
    assert await store.jobs.list_running(instance) == []


async def test_a_rolled_back_completion_leaves_the_job_running(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await program.write(1)
    await complete(store, program, instance, job)
    await program.rollback()
    assert (await state(store, job), await program.numbers()) == (JobState.RUNNING, [])
    assert await store.jobs.list_running(instance) == [hold(job)]
    await program.begin()
    await complete(store, program, instance, job)
    await program.commit()
    assert await state(store, job) is JobState.SUCCEEDED


async def refused(store: Store, program: Caller, instance: str, job: ClaimedJob, **facts: Any) -> ClaimLost:
    """A transaction that ends as one does whose program swallows the refusal."""
    await program.begin()
    await program.write(1)
    with pytest.raises(ClaimLost) as caught:
        await complete(store, program, instance, job, **facts)
    await program.commit()
    return caught.value


async def test_the_whole_transaction_of_an_instance_declared_dead_is_refused(store: Store, program: Caller) -> None:
    zombie, heir = await worker(store), await worker(store)
    job = await claimed_one(store, zombie)
    await store.instances.declare_dead(zombie, beat=None, started=None, reason="test")
    assert (await refused(store, program, zombie, job)).completed is False
    [again] = await claim(store, heir)
    assert again.id == job.id
    await refused(store, program, zombie, job)
    assert await end(store, heir, again, OutcomeKind.SUCCEEDED)
    await refused(store, program, zombie, job)
    record = await get_job(store, job.id)
    assert (record.state, record.instance, await program.numbers()) == (JobState.SUCCEEDED, heir, [])


@pytest.mark.parametrize("wrong", ["token", "instance", "id"])
async def test_a_completion_that_names_another_claim_is_refused(store: Store, program: Caller, wrong: str) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    named = {"token": job.token, "instance": instance, "id": job.id}
    named[wrong] = {"token": job.token - 1, "instance": new_instance_id(), "id": new_job().id}[wrong]
    await program.begin()
    await program.write(1)
    with pytest.raises(ClaimLost):
        await store.transactional.complete(
            program.conn,
            CompletedJob(
                instance=named["instance"],  # type: ignore[arg-type]
                claim=ClaimRef(named["id"], named["token"]),  # type: ignore[arg-type]
                started_at=1,
                result=None,
                result_error=None,
            ),
        )
    await program.commit()
    assert (await state(store, job), await program.numbers()) == (JobState.RUNNING, [])


async def test_a_second_completion_is_refused_and_says_that_there_was_a_first(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await complete(store, program, instance, job)
    await program.commit()
    assert (await refused(store, program, instance, job)).completed is True
    assert await program.numbers() == []


async def test_a_requested_cancellation_comes_too_late(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert await store.jobs.cancel([job.id]) == [CancelAnswer.REQUESTED]
    await program.begin()
    await complete(store, program, instance, job)
    await program.commit()
    assert await state(store, job) is JobState.SUCCEEDED


async def test_what_follows_a_success_is_stored_with_its_commit(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job, follow_ups = await claimed_one(store, instance), [new_job(task="thank") for _ in range(2)]
    await program.begin()
    await complete(store, program, instance, job, follow_up=follow_ups[0])
    await program.rollback()
    assert (await state(store, job), await exists(store, follow_ups[0].id)) == (JobState.RUNNING, False)
    await program.begin()
    await complete(store, program, instance, job, follow_up=follow_ups[1])
    await program.commit()
    assert (await state(store, job), ids(await claim(store, instance))) == (JobState.SUCCEEDED, [follow_ups[1].id])
    assert (await refused(store, program, instance, job, follow_up=new_job(task="thank"))).completed is True
    assert await claim(store, instance) == []


async def test_the_late_outcome_of_a_completed_job_is_known_already(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await complete(store, program, instance, job, result="1")
    await program.commit()
    assert await report(store, instance, outcome(job, OutcomeKind.SUCCEEDED, result="2")) == ["duplicate"]
    assert await report(store, instance, outcome(job, OutcomeKind.RETRY)) == ["stale"]
    assert (await get_job(store, job.id)).result == "1"


async def test_a_trace_goes_through_both_transactions(store: Store, program: Caller) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traced, plain, instance = new_job(trace=trace), new_job(), await worker(store)
    await program.begin()
    await store.transactional.add(program.conn, [traced, plain])
    await program.commit()
    jobs = {job.id: job for job in await claim(store, instance)}
    assert (jobs[traced.id].trace, jobs[plain.id].trace) == (trace, None)
    await program.begin()
    await complete(store, program, instance, jobs[traced.id])
    await program.commit()
    found = await get_job(store, traced.id)
    assert (found.state, found.trace) == (JobState.SUCCEEDED, trace)


async def test_the_stores_own_transaction_is_committed(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    own = store.transactional.transaction()
    conn = await own.begin()
    await program.write(1, conn)
    await store.transactional.complete(
        conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    assert (await state(store, job), await program.numbers()) == (JobState.RUNNING, [])
    await own.commit()
    assert (await state(store, job), await program.numbers()) == (JobState.SUCCEEDED, [1])
    await own.rollback()


async def test_the_stores_own_transaction_is_rolled_back(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    own = store.transactional.transaction()
    conn = await own.begin()
    await program.write(1, conn)
    await store.transactional.complete(
        conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    await own.rollback()
    assert (await state(store, job), await program.numbers()) == (JobState.RUNNING, [])


async def test_jobs_are_enqueued_in_the_stores_own_transaction(store: Store, program: Caller) -> None:
    job = new_job()
    own = store.transactional.transaction()
    await store.transactional.add(await own.begin(), [job])
    assert not await exists(store, job.id)
    await own.commit()
    assert await exists(store, job.id)


async def test_this_engine_has_transactions(store: Store) -> None:
    store.transactional.transaction()
