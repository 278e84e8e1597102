import asyncio

from drumbeat.clock import FakeClock
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.instance_lease import InstanceLease
from tests.unit.test_result import claimed
from tests.waiting import until


async def test_jobs_come_out_in_the_order_they_went_in() -> None:
    buffer = JobBuffer(lambda: None)
    jobs = [claimed(task=name) for name in "abc"]
    buffer.put(jobs)
    assert [await buffer.take() for _ in jobs] == jobs


async def test_a_waiting_slot_is_woken_by_a_job_and_by_the_end() -> None:
    buffer = JobBuffer(lambda: None)
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(buffer.take()) for _ in range(2))
        await until(lambda: buffer.idle_slots == 2)
        buffer.put([job := claimed()])
        assert await first is job
        assert buffer.close() == []
    assert second.result() is None


async def test_a_slot_that_is_cancelled_while_waiting_takes_no_job_with_it() -> None:
    buffer = JobBuffer(lambda: None)
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(buffer.take())
        await until(lambda: buffer.idle_slots == 1)
        gone.cancel()
    buffer.put([job := claimed()])
    assert (buffer.idle_slots, await buffer.take()) == (0, job)


async def test_more_jobs_of_one_task_are_taken_and_the_others_keep_their_order() -> None:
    buffer = JobBuffer(lambda: None)
    buffer.put([claimed(task=name) for name in "abcabca"])
    assert [job.task for job in buffer.take_more("a", 2)] == ["a", "a"]
    assert "".join(job.task for job in buffer.close()) == "bcbca"


async def test_it_signals_once_when_it_runs_low_and_again_after_more_were_put() -> None:
    calls: list[int] = []
    buffer = JobBuffer(lambda: calls.append(len(buffer)))
    buffer.low_watermark = 1
    buffer.put([claimed() for _ in range(4)])
    for _ in range(4):
        await buffer.take()
    assert calls == [1]
    buffer.put([claimed() for _ in range(3)])
    for _ in range(3):
        await buffer.take()
    assert calls == [1, 1]


async def test_no_job_is_handed_out_while_the_lease_may_have_ended() -> None:
    clock = FakeClock()
    lease = InstanceLease(10.0, clock)
    buffer = JobBuffer(lambda: None, lease.is_current)
    buffer.put([job := claimed()])
    async with asyncio.TaskGroup() as group:
        taken = group.create_task(buffer.take())
        await until(lambda: buffer.idle_slots == 1)
        lease.renew(clock.monotonic() - 10.0)  # its answer took as long as the lease lasts
        buffer.wake()
        await until(lambda: buffer.idle_slots == 1)
        lease.renew(clock.monotonic() - 9.9)
        buffer.wake()
        assert await taken is job


async def test_jobs_that_wait_for_the_lease_are_gone_when_it_was_lost() -> None:
    buffer = JobBuffer(lambda: None, lambda: False)
    buffer.put([job := claimed()])
    async with asyncio.TaskGroup() as group:
        taken = group.create_task(buffer.take())
        await until(lambda: buffer.idle_slots == 1)
        assert buffer.drain() == [job]
        buffer.close()
    assert taken.result() is None


async def test_a_buffer_that_holds_its_jobs_gives_them_back_at_its_end() -> None:
    buffer = JobBuffer(lambda: None)
    jobs = [claimed(task=name) for name in "abc"]
    buffer.put(jobs[:2])
    assert await buffer.take() == jobs[0]
    buffer.hold()
    async with asyncio.TaskGroup() as group:
        slot = group.create_task(buffer.take())
        await until(lambda: buffer.idle_slots == 1)
        buffer.put(jobs[2:])
        await until(lambda: buffer.idle_slots == 1)
        assert buffer.close() == jobs[1:]
    assert slot.result() is None
