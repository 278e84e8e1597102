"""`drumbeat dashboard`: serves the dashboard and the API of a store until SIGTERM or Ctrl-C. It runs no jobs."""

from __future__ import annotations

import click

from drumbeat.cli.connection import load_app
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import CliTarget, app_option, target_command, url_option


@target_command("dashboard", app_option, url_option)
@click.option("--host", metavar="HOST", help="Listen address. Default: 127.0.0.1. [DRUMBEAT_DASHBOARD]")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65_535), help="Listen port. Default: 7777; 0: any free port."
)
@click.option("--namespace", metavar="NAME", help="Namespace within a shared database.")
def command(target: CliTarget, /, host: str | None, port: int | None, namespace: str | None) -> int:
    """Serve the dashboard and its API.

    On the loopback address it needs no login. To listen on another address, configure logins:
    DRUMBEAT_DASHBOARD_TOKENS=name:role:token. With --app it also knows the signatures of the program's tasks.
    """
    from drumbeat import logs
    from drumbeat.platforms import require_posix
    from drumbeat.processes.init import run_under_init

    require_posix("`drumbeat dashboard` needs", "mount app.dashboard() in a program, or use WSL")
    run_under_init()
    try:
        from drumbeat.web import server
    except ImportError as missing:
        raise BadInput(f"the dashboard needs packages: pip install 'drumbeat[web]' ({missing})") from missing
    if namespace is not None:
        target.flags["namespace"] = namespace
    app = load_app(target)
    if host is not None or port is not None:
        set_host, set_port = server.split_address(app.settings.dashboard)
        name = set_host if host is None else host.strip("[]")
        address = f"[{name}]" if ":" in name else name
        app.configure(target.flags | {"dashboard": f"{address}:{set_port if port is None else port}"})
    logs.configure(app.settings.log_level, app.settings.log_format)
    return server.run(
        app._internals, on_ready=lambda address: click.echo(f"dashboard of {target.store_url} at {address}")
    )
