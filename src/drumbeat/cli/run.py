"""`drumbeat run module:app`: one worker, or several under a supervisor, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli.options import CliTarget, target_command, url_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from drumbeat.cli.probe import ProgramInfo
    from drumbeat.processes.service_notifier import ServiceNotifier
    from drumbeat.settings import Settings


@target_command("run", url_option)
@click.argument("app", required=False, metavar="MODULE:ATTR")
@click.option("--role", type=click.Choice(["both", "worker", "controller"]), help="Role of the process. Default: both.")
@click.option(
    "--queues",
    metavar="NAME[=WEIGHT],...",
    help="Take only these queues, such as critical=6,mail. Default: the queues of all tasks.",
)
@click.option("--strict", is_flag=True, default=None, help="Always take higher weights first: lower queues may starve.")
@click.option("--concurrency", metavar="N", help="Concurrent jobs in one process. Default: 10.")
@click.option("--batch", metavar="N", help="Maximum number of jobs claimed or completed in one step. Default: 500.")
@click.option("--processes", metavar="N", help="Worker processes, restarted when they die. Default: 1.")
@click.option(
    "--drain", metavar="SECONDS|forever", help="How long running jobs may continue after SIGTERM. Default: 25."
)
@click.option("--max-jobs", metavar="N", help="Replace a worker process after so many jobs. Default: never.")
@click.option("--max-memory", metavar="SIZE", help="Replace a worker process that takes more, such as 512MB.")
@click.option("--burst", is_flag=True, default=None, help="Work until nothing is due or running, then exit 0.")
@click.option(
    "--dashboard", metavar="HOST:PORT", help="Also serve the dashboard on this address, in a separate process."
)
@click.option(
    "--health", metavar="HOST:PORT|FILE", help="Answer probes on /live and /ready there, or write a file every second."
)
@click.option("--migrate", is_flag=True, help="Upgrade the store's schema first.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error. Default: info.")
@click.option("--log-format", metavar="FORMAT", help="text or json (lines). Default: text.")
@click.option("--namespace", metavar="NAME", help="Namespace within a shared database.")
def command(target: CliTarget, /, app: str | None, migrate: bool, **flags: Any) -> int:
    """Run the jobs of an app until SIGTERM or Ctrl-C; then let running jobs end, and release the others.

    With --burst, until there is nothing left to do.

    MODULE:ATTR is the Drumbeat object of your program, such as app:app for `app` in app.py.
    """
    from drumbeat import logs
    from drumbeat.platforms import require_posix

    require_posix("workers need")
    from drumbeat.processes.init import run_under_init
    from drumbeat.processes.service_notifier import ServiceNotifier

    run_under_init()
    target.flags |= {name: value for name, value in flags.items() if value is not None}
    settings = _load_settings(target, app)
    notifier = ServiceNotifier.take(os.environ)  # before any code of the program could start a process
    if settings.processes > 1:
        from drumbeat.cli import probe
        from drumbeat.supervisor import Supervisor, supervisor_health

        program = probe.probe_program(ref := str(settings.app), target.flags)
        logs.configure(program.settings.log_level, program.settings.log_format)
        with supervisor_health(program.settings, notifier=notifier) as health:
            if (code := _prepare(program, ref, migrate=migrate)) is not None:
                return code
            with _dashboard(ref, program.settings, wanted="dashboard" in target.flags):
                return Supervisor(ref, program.settings, health=health).run()
    return _run_worker(str(settings.app), target.flags, notifier, migrate=migrate)


def _run_worker(ref: str, flags: dict[str, Any], notifier: ServiceNotifier | None, *, migrate: bool) -> int:
    from drumbeat import appref, logs
    from drumbeat.cli import probe
    from drumbeat.cli.program import ARGUMENTS
    from drumbeat.worker import main
    from drumbeat.worker.worker_health import worker_health

    app = appref.load(ref)
    settings = app.configure(flags | {"app": ref})
    if settings.processes > 1:
        # The program's code sets it. It has been imported here, and a supervisor must not run it: start again without it.
        if notifier is not None:
            notifier.give_back(os.environ)
        given = click.get_current_context().meta[ARGUMENTS]
        os.execv(sys.executable, [sys.executable, "-m", "drumbeat", *given, "--processes", str(settings.processes)])
    if not logging.getLogger().handlers:  # else the program has configured it
        logs.configure(settings.log_level, settings.log_format)
    with worker_health(settings, notifier=notifier) as health:
        if (code := _prepare(probe.describe_program(app, settings), ref, migrate=migrate)) is not None:
            return code
        with _dashboard(ref, settings, wanted="dashboard" in flags):
            return main.run(app._internals, settings, ref=ref, health=health)


def _dashboard(ref: str, settings: Settings, *, wanted: bool) -> AbstractContextManager[None]:
    if not wanted:
        return nullcontext()
    from drumbeat.web.dashboard_process import dashboard_process

    return dashboard_process(ref, settings)


def _load_settings(target: CliTarget, app: str | None) -> Settings:
    """The settings of the command line and the environment, before the program is imported."""
    from drumbeat.cli.failures import BadInput
    from drumbeat.settings_loader import load

    settings = load(target.flags | ({"app": app} if app else {}), {})
    if settings.app is None:
        raise BadInput("which app? Write `drumbeat run module:attr`, or set DRUMBEAT_APP")
    return settings


def _prepare(program: ProgramInfo, ref: str, *, migrate: bool) -> int | None:
    """Open the stores, then log one line with what is started.

    Returns an exit code if nothing is to be started.
    """
    import asyncio
    from importlib.metadata import version

    from drumbeat.redaction import mask_url
    from drumbeat.store.urls import parse

    log, settings = logging.getLogger("drumbeat.run"), program.settings
    if (code := asyncio.run(_open_stores(settings, migrate=migrate))) is not None:
        return code
    queues = ",".join(f"{queue}={weight}" for queue, weight in program.queues.items())
    facts = {
        "version": version("drumbeat"),
        "app": ref,
        "store": mask_url(parse(settings.url).text),
        "queues": f"{queues} strict" if settings.strict else queues,
        "tasks": ",".join(program.tasks),
        "role": settings.role,
        "concurrency": settings.concurrency,
        "processes": settings.processes,
    }
    log.info("drumbeat starts", extra=facts)
    if not program.tasks and not program.rooms:
        log.warning("this app has no tasks: import the modules that register them")
    if left := sorted(program.task_queues - program.queues.keys()):
        log.info("queues of this app that this worker does not take", extra={"left_queues": ",".join(left)})
    return None


async def _open_stores(settings: Settings, *, migrate: bool) -> int | None:
    """Open each store once, so that a wrong URL is reported here and not by each worker.

    Returns an exit code if a store is unavailable for too long, or a signal arrives.
    """
    from contextlib import suppress

    from drumbeat.errors import StoreUnavailable
    from drumbeat.store.urls import migrate_store, open_store

    async def do(url: str) -> None:
        if migrate:
            await migrate_store(url, namespace=settings.namespace)
        else:
            async with await open_store(url, namespace=settings.namespace):
                pass

    code = await _wait_for_store(settings.url, settings, do)
    if code is not None or settings.outbox is None:
        return code
    if migrate:
        return await _wait_for_store(settings.outbox, settings, do)
    with suppress(StoreUnavailable):  # not fatal: the relay waits for it
        await do(settings.outbox)
    return None


async def _wait_for_store(url: str, settings: Settings, do: Callable[[str], Awaitable[None]]) -> int | None:
    """Wait for a store that does not answer, as long as a running worker would."""
    import asyncio

    from drumbeat.clock import SYSTEM
    from drumbeat.errors import StoreUnavailable
    from drumbeat.outage import UnreachableRule
    from drumbeat.processes.exit_codes import EXIT_NO_STORE, EXIT_OK
    from drumbeat.processes.signals import stop_on_signals
    from drumbeat.redaction import mask_url
    from drumbeat.service import open_with_retries

    log, stop, code = logging.getLogger("drumbeat.run"), asyncio.Event(), EXIT_OK
    rule = UnreachableRule(settings, SYSTEM)

    def failed(error: StoreUnavailable) -> None:
        nonlocal code
        facts = {"url": mask_url(url), "reason": str(error)}
        if not rule.failures:
            log.error("the store does not answer; trying again", extra=facts)
        if rule.record_failure():
            code = EXIT_NO_STORE
            log.error("the store has been away for too long: nothing is started", extra=facts | {"exit_code": code})
            stop.set()

    async def opened() -> bool:
        await do(url)
        return True

    with stop_on_signals(stop.set):
        done = await open_with_retries(opened, on_failure=failed, stop=stop, retry_delay=settings.heartbeat)
    return None if done else code
