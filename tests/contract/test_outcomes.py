"""Jobs.report_and_claim, outcomes: what each does to a job, and the status of outcomes that come too late."""

import msgspec
import pytest

from drumbeat.core.claim import WriteStatus
from drumbeat.core.instance import Instance
from drumbeat.core.job import Attempt, Job, JobState, OutcomeKind
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import (
    BOOM,
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    exchange,
    hold,
    ids,
    new_job,
    outcome,
    release,
    report,
    wanting,
    worker,
)

RETURNING = [OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.RELEASED, OutcomeKind.BLOCKED, OutcomeKind.CRASHED]
EVERY = list(OutcomeKind)


def us(moment: object) -> int:
    return round(moment.timestamp() * 1_000_000)  # type: ignore[attr-defined, no-any-return]


async def instance_of(store: Store, id: str) -> Instance:
    return next(each for each in await store.inspect.list_instances(all=True) if each.id == id)


def is_free(job: Job) -> bool:
    return (job.state, job.instance, job.started_at) == (JobState.PENDING, None, None)


async def test_success_moves_the_job_to_history_with_its_result(store: Store, open_again: OpenAgain) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k")
    assert (
        await end(store, instance, job, OutcomeKind.SUCCEEDED, result='{"ok":1}', result_error="no")
        == WriteStatus.APPLIED
    )
    found = await get_job((await open_again()), job.id)
    assert (found.state, found.result, found.result_error, found.error) == (JobState.SUCCEEDED, '{"ok":1}', "no", None)
    assert (found.instance, found.token, found.failures) == (instance, job.token, 0)
    assert found.started_at is not None and us(found.started_at) == job.token + 10
    assert found.finished_at is not None and us(found.finished_at) == job.token + 20
    assert (found.key, found.args, found.queue) == ("k", job.args, "default")
    assert await store.jobs.list_running(instance) == []


async def test_an_outcome_without_times_is_finished_now(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED, started_at=None, finished_at=None)
    found = await get_job(store, job.id)
    assert found.started_at is None
    assert found.finished_at is not None and job.token <= us(found.finished_at) <= await store.inspect.now()


async def test_a_retry_is_charged_and_due_after_its_delay(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    before = await store.inspect.now()
    assert await end(store, instance, job, OutcomeKind.RETRY, delay=HOUR) == WriteStatus.APPLIED
    found = await get_job(store, job.id)
    assert is_free(found)
    assert (found.failures, found.crashes, found.error) == (1, 0, BOOM)
    assert before + HOUR <= us(found.run_at) <= await store.inspect.now() + HOUR
    assert us(found.due_at) == job.due_at, "a retry does not move the moment it was meant for"
    assert await claim(store, instance) == []


async def test_a_snooze_is_not_charged(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.SNOOZED, delay=HOUR)
    found = await get_job(store, job.id)
    assert is_free(found)
    assert (found.failures, found.crashes) == (0, 0)
    assert us(found.run_at) > job.token + HOUR


async def test_a_released_job_is_pending_at_once_in_its_old_place(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await add(store, new_job())
    await end(store, instance, job, OutcomeKind.RELEASED)
    again = (await claim(store, instance))[0]
    assert (again.id, again.run_at, again.failures, again.crashes) == (job.id, job.run_at, 0, 0)


async def test_a_crash_is_charged_to_crashes_and_dead_at_the_limit(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, crash_limit=2)
    follow_up = new_job(task="mourn")
    await end(store, instance, job, OutcomeKind.CRASHED, follow_up=follow_up)
    found = await get_job(store, job.id)
    assert is_free(found)
    assert (found.crashes, found.failures) == (1, 0)
    [job] = await claim(store, instance)
    assert job.crashes == 1, "below the limit nothing follows"
    await end(store, instance, job, OutcomeKind.CRASHED, follow_up=follow_up)
    found = await get_job(store, job.id)
    assert (found.state, found.crashes, found.failures, found.error) == (JobState.DEAD, 2, 0, BOOM)
    assert ids(await claim(store, instance)) == [follow_up.id]


async def test_death_keeps_everything_and_stores_its_follow_up_in_the_same_step(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k", on_dead="mourn")
    await store.jobs.save_progress(instance, [(hold(job), '"half"')])
    follow_up = new_job(task="mourn")
    got = await exchange(store, instance, [outcome(job, OutcomeKind.DEAD, follow_up=follow_up)], wanting())
    assert (got.statuses, ids(got.jobs)) == ([WriteStatus.APPLIED], [follow_up.id])
    found = await get_job(store, job.id)
    assert (found.state, found.failures, found.crashes, found.error) == (JobState.DEAD, 1, 0, BOOM)
    assert (found.key, found.args, found.on_dead, found.progress) == ("k", job.args, "mourn", '"half"')
    assert (found.instance, found.token) == (instance, job.token)


async def test_success_stores_its_follow_up_in_the_same_step_and_only_once(store: Store) -> None:
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(3)]
    follow_ups = [new_job(task="thank", key=key) for key in ("k", None, None)]
    plain = await claimed_one(store, instance)
    outcomes = [
        outcome(job, OutcomeKind.SUCCEEDED, result="1", follow_up=follow_up)
        for job, follow_up in zip(jobs, follow_ups, strict=True)
    ]
    stale = msgspec.structs.replace(outcomes[2], token=outcomes[2].token - 1)
    first = [outcomes[0], outcome(plain, OutcomeKind.SUCCEEDED), outcomes[1], stale]
    got = await exchange(store, instance, first, wanting())
    assert got.statuses == [*[WriteStatus.APPLIED] * 3, WriteStatus.STALE]
    assert sorted(ids(got.jobs)) == sorted([follow_ups[0].id, follow_ups[1].id])
    assert {job.key for job in got.jobs} == {"k", None}
    assert (await get_job(store, jobs[0].id)).result == "1"
    # The answer was lost, and the worker tells it again: nothing more is stored.
    got = await exchange(store, instance, first[:1], wanting())
    assert (got.statuses, got.jobs) == ([WriteStatus.DUPLICATE], [])


@pytest.mark.parametrize("kind", RETURNING)
async def test_a_job_whose_cancellation_was_requested_does_not_come_back(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.jobs.cancel([job.id])
    again = outcome(job, kind, blocked_on="task:x")
    assert await report(store, instance, again) == [WriteStatus.APPLIED]
    found = await get_job(store, job.id)
    assert (found.state, found.cancel_requested) == (JobState.CANCELLED, True)
    assert await report(store, instance, again) == [WriteStatus.DUPLICATE]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD])
async def test_a_requested_cancellation_may_come_too_late(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.jobs.cancel([job.id])
    await end(store, instance, job, kind)
    assert (await get_job(store, job.id)).state == kind.value


@pytest.mark.parametrize("kind", EVERY)
async def test_a_repeated_outcome_changes_nothing(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    again = outcome(job, kind, delay=HOUR, blocked_on="task:x", follow_up=new_job(task="mourn", delay=HOUR))
    assert await report(store, instance, again) == [WriteStatus.APPLIED]
    seen = await get_job(store, job.id)
    assert await report(store, instance, again) == [WriteStatus.DUPLICATE]
    assert await get_job(store, job.id) == seen
    assert len((await store.inspect.get_attempts([job.id]))[job.id]) == 1
    assert (await instance_of(store, instance)).refused == 0


@pytest.mark.parametrize("kind", EVERY)
async def test_an_outcome_of_a_lost_claim_is_stale_and_counted(store: Store, kind: OutcomeKind) -> None:
    zombie, other = await worker(store), await worker(store)
    job = await claimed_one(store, zombie)
    await release(store, zombie, hold(job))
    [again] = await claim(store, other)
    seen = await get_job(store, job.id)
    late = outcome(job, kind, blocked_on="task:x", follow_up=new_job())
    assert await report(store, zombie, late) == [WriteStatus.STALE]
    assert await report(store, other, outcome(job, kind)) == [WriteStatus.STALE], "the right instance, an old token"
    assert await report(store, zombie, outcome(again, kind)) == [WriteStatus.STALE], "the right token, another instance"
    assert await get_job(store, job.id) == seen
    assert (await store.inspect.get_attempts([job.id]))[job.id] == []
    assert [(await instance_of(store, each)).refused for each in (zombie, other)] == [2, 1]
    assert await end(store, other, again, OutcomeKind.SUCCEEDED) == WriteStatus.APPLIED


@pytest.mark.parametrize("result", [None, '"late"'])
@pytest.mark.parametrize("count", [1, 25])
async def test_late_successes_of_older_claims_of_the_same_instance_change_nothing(
    store: Store, count: int, result: str | None
) -> None:
    instance = await worker(store)
    await add(store, *(new_job() for _ in range(count)))
    old = await claim(store, instance)
    await release(store, instance, *map(hold, old))
    new = await claim(store, instance)
    assert ids(new) == ids(old)
    late = [outcome(job, OutcomeKind.SUCCEEDED, result=result) for job in old]
    assert await report(store, instance, *late) == [WriteStatus.STALE] * count
    assert [(job.id, job.token) for job in await store.jobs.list_running(instance)] == sorted(
        (job.id, job.token) for job in new
    )
    own = [outcome(job, OutcomeKind.SUCCEEDED, result='"own"') for job in new]
    assert await report(store, instance, *own) == [WriteStatus.APPLIED] * count
    ended = await store.jobs.get_results(ids(new))
    assert [each and each.result for each in ended] == ['"own"'] * count


async def test_the_same_instances_older_claim_is_stale(store: Store) -> None:
    instance = await worker(store)
    old = await claimed_one(store, instance)
    await end(store, instance, old, OutcomeKind.RETRY)
    [new] = await claim(store, instance)
    assert await end(store, instance, old, OutcomeKind.SUCCEEDED) == WriteStatus.STALE
    assert await end(store, instance, new, OutcomeKind.SUCCEEDED) == WriteStatus.APPLIED


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind is not OutcomeKind.CRASHED])
async def test_the_late_result_of_an_instance_declared_dead_is_stale(store: Store, kind: OutcomeKind) -> None:
    zombie = await worker(store)
    job = await claimed_one(store, zombie)
    await store.instances.declare_dead(zombie, beat=None, started=None, reason="no heartbeat")
    assert await end(store, zombie, job, kind) == WriteStatus.STALE
    assert (await instance_of(store, zombie)).refused == 1


async def test_an_outcome_for_a_job_that_is_nowhere_is_stale(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    await store.jobs.prune(await store.inspect.now() + HOUR, 10)
    assert await end(store, instance, job, OutcomeKind.SUCCEEDED) == WriteStatus.STALE


async def test_a_mixed_batch_gets_a_status_for_each_in_order(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(8)]
    foreign = await claimed_one(store, other)
    await end(store, instance, jobs[7], OutcomeKind.SUCCEEDED)
    statuses = await report(
        store,
        instance,
        outcome(jobs[7], OutcomeKind.SUCCEEDED),
        outcome(jobs[0], OutcomeKind.SUCCEEDED),
        outcome(jobs[1], OutcomeKind.RETRY),
        outcome(foreign, OutcomeKind.SUCCEEDED),
        outcome(jobs[2], OutcomeKind.DEAD),
        outcome(jobs[3], OutcomeKind.CANCELLED),
        outcome(jobs[4], OutcomeKind.SNOOZED),
        outcome(jobs[5], OutcomeKind.BLOCKED, blocked_on="task:x"),
        outcome(foreign, OutcomeKind.RETRY),
        outcome(jobs[6], OutcomeKind.SUCCEEDED),
        outcome(jobs[0], OutcomeKind.SUCCEEDED),
        outcome(jobs[1], OutcomeKind.RETRY),
    )
    done, already, stale = WriteStatus.APPLIED, WriteStatus.DUPLICATE, WriteStatus.STALE
    assert statuses == [already, done, done, stale, done, done, done, done, stale, done, already, already]
    states = [(await get_job(store, job.id)).state.value for job in jobs]
    assert states == ["succeeded", "pending", "dead", "cancelled", "pending", "pending", "succeeded", "succeeded"]


async def test_an_old_and_a_current_claim_in_one_batch_are_told_apart(store: Store) -> None:
    instance = await worker(store)
    old = await claimed_one(store, instance)
    await end(store, instance, old, OutcomeKind.RELEASED, started_at=None)
    [new] = await claim(store, instance)
    for kind in (OutcomeKind.RELEASED, OutcomeKind.SUCCEEDED):
        statuses = await report(store, instance, outcome(old, kind), outcome(new, kind, started_at=None))
        assert statuses == [WriteStatus.STALE, WriteStatus.APPLIED]
        if kind is OutcomeKind.RELEASED:
            [new] = await claim(store, instance)


async def test_many_outcomes_at_once(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job() for _ in range(1_300)))
    jobs = await claim(store, instance, limit=1_300)
    kinds = [OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.CANCELLED, OutcomeKind.RELEASED]
    outcomes = [outcome(job, kinds[number % 5], delay=HOUR) for number, job in enumerate(jobs)]
    assert await report(store, instance, *outcomes) == [WriteStatus.APPLIED] * 1_300
    [stats] = await store.inspect.list_tasks()
    assert (stats.pending, stats.running, stats.succeeded, stats.dead, stats.cancelled) == (520, 0, 260, 260, 260)


def facts(attempt: Attempt) -> tuple[int, str | None, OutcomeKind, bool]:
    return attempt.token, attempt.instance, attempt.outcome, attempt.error is not None


async def test_every_run_is_on_record_oldest_first_the_last_included(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    expected = []
    for kind in (OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.CRASHED, OutcomeKind.RELEASED):
        await end(store, instance, job, kind)
        expected.append((job.token, instance, kind, kind in {OutcomeKind.RETRY, OutcomeKind.CRASHED}))
        [job] = await claim(store, instance)
    assert [facts(attempt) for attempt in (await store.inspect.get_attempts([job.id]))[job.id]] == expected
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    attempts = (await store.inspect.get_attempts([job.id]))[job.id]
    assert [facts(attempt) for attempt in attempts] == [*expected, (job.token, instance, OutcomeKind.SUCCEEDED, False)]
    assert attempts[0].error == BOOM
    for attempt in attempts:
        assert attempt.started_at is not None
        assert (us(attempt.started_at), us(attempt.finished_at)) == (attempt.token + 10, attempt.token + 20)


@pytest.mark.parametrize("kind", [OutcomeKind.RELEASED, OutcomeKind.BLOCKED])
async def test_a_claim_given_back_before_it_started_leaves_no_attempt(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, kind, started_at=None, blocked_on="task:x")
    assert (await store.inspect.get_attempts([job.id]))[job.id] == []


async def test_runs_of_many_jobs_are_read_in_one_call(store: Store) -> None:
    instance = await worker(store)
    kinds = (OutcomeKind.RETRY, OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED)
    jobs = {kind: await claimed_one(store, instance) for kind in kinds}
    for kind, job in jobs.items():
        await end(store, instance, job, kind)
    [again] = await claim(store, instance)
    await end(store, instance, again, OutcomeKind.DEAD)
    [fresh] = await add(store, new_job())
    unknown, nonsense = new_job_id(), JobId("nonsense")
    wanted = [fresh, *(job.id for job in jobs.values()), unknown, nonsense, again.id]
    found = await store.inspect.get_attempts(wanted)
    outcomes = {id: [attempt.outcome for attempt in attempts] for id, attempts in found.items()}
    expected = {job.id: [kind] for kind, job in jobs.items()}
    assert outcomes == expected | {
        again.id: [OutcomeKind.RETRY, OutcomeKind.DEAD],
        fresh: [],
        unknown: [],
        nonsense: [],
    }
    assert await store.inspect.get_attempts([]) == {}


async def test_a_job_cancelled_before_it_started_has_no_attempt(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.CANCELLED, started_at=None)
    assert (await store.inspect.get_attempts([job.id]))[job.id] == []


async def test_release_gives_back_current_claims_and_passes_over_stale_ones(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    first, second = await claimed_one(store, instance), await claimed_one(store, instance)
    foreign = await claimed_one(store, other)
    assert await release(store, instance, hold(first), hold(foreign)) == 1
    assert await release(store, instance, hold(first)) == 0
    assert await release(store, instance) == 0
    found = await get_job(store, first.id)
    assert is_free(found) and (found.failures, found.crashes) == (0, 0)
    assert await store.jobs.list_running(instance) == [hold(second)]
    assert await store.jobs.list_running(other) == [hold(foreign)]
    assert (await store.inspect.get_attempts([first.id]))[first.id] == []


async def test_running_tells_ids_and_tokens(store: Store) -> None:
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(3)]
    assert sorted(await store.jobs.list_running(instance), key=lambda each: each.id) == [hold(job) for job in jobs]
    assert await store.jobs.list_running(await worker(store)) == []


async def test_progress_is_kept_for_current_claims_only(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    job, foreign = await claimed_one(store, instance), await claimed_one(store, other)
    notes = [(hold(job), '{"at":1}'), (hold(foreign), '"mine"')]
    await store.jobs.save_progress(instance, notes)
    assert (await get_job(store, job.id)).progress == '{"at":1}'
    assert (await get_job(store, foreign.id)).progress is None
    await store.jobs.save_progress(instance, [])
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    await store.jobs.save_progress(instance, [(hold(job), '"late"')])
    assert (await get_job(store, job.id)).progress == '{"at":1}'


async def test_progress_of_an_older_claim_of_the_same_instance_is_not_kept(store: Store) -> None:
    instance = await worker(store)
    older = await claimed_one(store, instance)
    await release(store, instance, hold(older))
    [newer] = await claim(store, instance)
    await store.jobs.save_progress(instance, [(hold(older), '"old"')])
    assert (newer.id, (await get_job(store, older.id)).progress) == (older.id, None)


async def test_attempts_are_runs_that_have_begun(store: Store) -> None:
    instance = await worker(store)

    async def attempts(id: JobId) -> int:
        return (await get_job(store, id)).attempts

    [never] = await add(store, new_job(delay=HOUR))
    assert await attempts(never) == 0
    await store.jobs.cancel([never])
    assert await attempts(never) == 0
    job = await claimed_one(store, instance)
    assert await attempts(job.id) == 1
    await end(store, instance, job, OutcomeKind.RETRY, delay=0)
    assert await attempts(job.id) == 1
    [again] = await claim(store, instance)
    assert await attempts(job.id) == 2
    await end(store, instance, again, OutcomeKind.SUCCEEDED)
    assert await attempts(job.id) == 2
    assert await attempts((await dead_letter(store, instance)).id) == 1
