"""Valkey for the bench: a server of its own for each measure, with the same settings for all contenders.

A fresh server has an empty log and no memory of the measure before, so what it uses is what this contender put there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.apps import URL_NAME
from bench.contender import Contender
from bench.sites import Site

SETTINGS = {
    # What most who keep jobs in Redis set: about the last second of acknowledged jobs is lost when the machine dies.
    "appendonly": "yes",
    "appendfsync": "everysec",
    # No snapshot and no rewriting of the log begins by itself: it would fall into one contender's measure and not another's.
    "save": "",
    "auto-aof-rewrite-percentage": "0",
    "maxmemory-policy": "noeviction",
}
END = "end of the idle seconds"


class RedisSite(Site):
    def facts(self) -> dict[str, str]:
        with self._server() as server, _client(server.url) as client:
            told = client.info("server")
        version = f"Valkey {told['valkey_version']}" if "valkey_version" in told else f"Redis {told['redis_version']}"
        settings = [f"{name} {value or 'off'}" for name, value in SETTINGS.items()]
        return {"server": f"{version} ({', '.join(settings)})"}

    @contextmanager
    def prepare(self, contender: Contender, folder: Path) -> Iterator[dict[str, str]]:
        with self._server() as server:
            addresses = dict.fromkeys((URL_NAME, *contender.url_names), server.url)
            yield {**contender.environment(folder), **addresses}

    @contextmanager
    def count_operations(self, environment: dict[str, str]) -> Iterator[Callable[[], dict[str, int]]]:
        """Commands that clients sent, by MONITOR; and all that the server ran, those inside scripts too, by its statistics.

        The INFO that begins it is seen by both, and is ours.
        """
        with _client(environment[URL_NAME]) as client, client.monitor() as monitor:
            before = _calls(client)
            yield lambda: {"idle_statements": _sent(client, monitor) - 1, "idle_calls": _calls(client) - before - 2}

    def memory(self, environment: dict[str, str]) -> int:
        with _client(environment[URL_NAME]) as client:
            return int(client.info("memory")["used_memory"])

    def server_cpu(self, environment: dict[str, str]) -> float:
        with _client(environment[URL_NAME]) as client:
            used = client.info("cpu")
        return float(used["used_cpu_user"] + used["used_cpu_sys"])

    def _server(self) -> Any:
        # Imported here: a run on another engine needs neither redis-py nor the wheel.
        from tests.servers.redis import RedisServer

        return RedisServer(settings=SETTINGS)


def _client(url: str) -> Any:
    from redis import Redis

    # On one connection, made at once: another one's greeting would be counted.
    return Redis.from_url(url, single_connection_client=True)


def _calls(client: Any) -> int:
    return sum(command["calls"] for command in client.info("commandstats").values())


def _sent(client: Any, monitor: Any) -> int:
    """What has been seen until now. The server keeps it for us: nobody has to read meanwhile."""
    client.echo(END)
    sent = 0
    while not (command := monitor.next_command())["command"].endswith(END):
        sent += command["client_type"] != "lua"
    return sent
