import asyncio

from drumbeat.worker.buffer import JobBuffer
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
