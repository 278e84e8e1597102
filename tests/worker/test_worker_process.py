"""A worker process as its supervisor sees it."""

from pathlib import Path

from drumbeat.clock import SYSTEM
from drumbeat.settings import Settings
from drumbeat.worker.worker_process import WorkerProcess
from tests.waiting import until


async def test_what_a_worker_process_says_of_itself_is_heard_while_it_runs(tmp_path: Path) -> None:
    settings = Settings(url=f"sqlite:///{tmp_path}/jobs.db")
    process = WorkerProcess("tests.apps.handlers:app", settings, tmp_path / "journal", SYSTEM, reports_health=True)
    try:
        assert process.report().reasons == ("starting",)
        await until(lambda: process.report().reasons != ("starting",), deadline=20, what="a report")
        assert process.report().live
    finally:
        await process.stop(10)
        process.close()
