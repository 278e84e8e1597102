"""`drumbeat run module:app`: one worker, or several under a supervisor, until SIGTERM or Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli.options import Target, pass_target, url_option

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.settings import Settings


@click.command("run")
@click.argument("app", required=False, metavar="MODULE:ATTR")
@click.option("--role", type=click.Choice(["both", "worker", "controller"]), help="What it does. Default: both.")
@click.option(
    "--queues", metavar="NAME=WEIGHT,...", help="Such as critical=6,default=3,low=1; besides those of the tasks."
)
@click.option("--strict", is_flag=True, default=None, help="Higher weights first, always: lower queues may starve.")
@click.option("--concurrency", metavar="N", help="Jobs at the same time in one process. Default: 10.")
@click.option("--batch", metavar="N", help="Jobs claimed or finished in one step at most. Default: 500.")
@click.option("--processes", metavar="N", help="Worker processes, watched and replaced. Default: 1.")
@click.option("--drain", metavar="SECONDS|forever", help="How long running jobs may go on after SIGTERM. Default: 25.")
@click.option("--migrate", is_flag=True, help="Bring the store's schema up to date first.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error. Default: info.")
@click.option("--log-format", metavar="FORMAT", help="text or json (lines). Default: text.")
@click.option("--namespace", metavar="NAME", help="Which system of a shared database.")
@url_option
@pass_target
def command(target: Target, /, app: str | None, migrate: bool, **flags: Any) -> int:
    """Run jobs of an app until SIGTERM or Ctrl-C; then running jobs may end, and the rest goes back.

    MODULE:ATTR is the Drumbeat object of your program, such as app:app for `app` in app.py.
    """
    from drumbeat import appref, logs

    target.flags |= {name: value for name, value in flags.items() if value is not None}
    ref = _ref(target, app)
    found = appref.load(ref)
    settings = found.configure(target.flags | {"app": ref})
    logs.configure(settings.log_level, settings.log_format)
    _greet(found, settings, ref)
    # SQLite is brought up to date whenever it is opened: --migrate is for engines where a person decides that.
    if settings.processes > 1:
        from drumbeat.supervisor import Supervisor

        return Supervisor(ref, settings).run()
    from drumbeat.worker import main

    return main.run(found, settings, ref=ref)


def _ref(target: Target, app: str | None) -> str:
    from drumbeat.cli.failures import Refused
    from drumbeat.settings import load

    ref = load(target.flags | ({"app": app} if app else {}), {}).app
    if ref is None:
        raise Refused("which app? Write `drumbeat run module:attr`, or set DRUMBEAT_APP")
    return ref


def _greet(app: Drumbeat, settings: Settings, ref: str) -> None:
    """One line that says what was started, on what, with what."""
    import logging
    from importlib.metadata import version

    from drumbeat.store.urls import masked, parse

    tasks = app.registered_tasks
    weights = settings.weights(task.queue for task in tasks)
    facts = {
        "version": version("drumbeat"),
        "app": ref,
        "store": masked(parse(settings.url).text),
        "queues": ",".join(f"{queue}={weight}" for queue, weight in weights.items())
        + (" strict" if settings.strict else ""),
        "tasks": len(tasks),
        "role": settings.role,
        "concurrency": settings.concurrency,
        "processes": settings.processes,
    }
    logging.getLogger("drumbeat.run").info("drumbeat starts", extra=facts)
    if not tasks:
        logging.getLogger("drumbeat.run").warning("this app has no tasks: import the modules that register them")
