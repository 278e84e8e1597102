"""All settings, in one frozen record. Durations are in seconds.

`settings_loader.py` resolves them from flags, code, environment and `.env`. A value of a setting is parsed by the function in
its annotation, from `setting_parsers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

import msgspec

from . import setting_parsers as parsers
from .durations import Duration
from .names import check_namespace
from .retry import Backoff, Delays

PREFIX = "DRUMBEAT_"
DEFAULT_URL = "sqlite:///drumbeat.db"
FOREVER = parsers.FOREVER
MAX_PAYLOAD_LIMIT = parsers.MAX_PAYLOAD_LIMIT


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a program, a worker or a command."""

    url: Annotated[str, parsers.parse_url] = DEFAULT_URL
    """The store. A relative path of a SQLite file is made absolute when the settings are resolved.

    Default: sqlite:///drumbeat.db, in the current folder.
    """

    coordination: Annotated[str | None, parsers.parse_url] = None
    """A second store for locks, rooms and wake-ups. None: they are in the store in `url`.

    Default: None.
    """

    outbox: Annotated[str | None, parsers.parse_outbox] = None
    """A SQL database of your own, in which `using(conn=...)` writes jobs for the store in `url`, so that jobs on Redis commit
    with your data. Workers relay them.

    Default: None.
    """

    namespace: Annotated[str, check_namespace] = "drumbeat"
    """The prefix of every table or key, so that several systems can share a database.

    Default: drumbeat.
    """

    app: Annotated[str | None, parsers.parse_text] = None
    """`module:attr` of the program's Drumbeat object; needed by commands that run or name its tasks.

    Default: None.
    """

    name: Annotated[str, parsers.parse_text] = "app"
    """The name of this program in lists of instances.

    Default: app.
    """

    version: Annotated[str, parsers.parse_text] = ""
    """The program's own version, shown with its instances.

    Default: empty.
    """

    imports: Annotated[tuple[str, ...], parsers.parse_module_names] = ()
    """Modules that a worker imports besides the app's own, because they register tasks.

    Default: none.
    """

    queues: Annotated[dict[str, int], parsers.parse_queues] = {}
    """The queues that a worker takes, these and no others, with their weights, as `critical=6,default=3`; a name alone has
    its default weight (critical 6, low 1, others 3).

    Default: none; a worker then takes every queue that its tasks use.
    """

    strict: Annotated[bool, parsers.parse_bool] = False
    """Take queues strictly in the order of their weights: a lower one only while the higher ones are empty.

    Default: false; queues then share by weight and none starves.
    """

    role: Annotated[Literal["both", "worker", "controller"], parsers.one_of(*parsers.ROLES)] = "both"
    """What an instance does: run jobs (worker), maintain the cluster (controller), or both.

    Default: both.
    """

    concurrency: Annotated[int, parsers.int_between(1, 10_000)] = 10
    """The maximum number of jobs that one process runs at the same time.

    Default: 10.
    """

    batch: Annotated[int, parsers.int_between(1, 10_000)] = 500
    """The maximum number of jobs claimed or reported in one call: small for fairness, large for bursts.

    Default: 500.
    """

    processes: Annotated[int, parsers.int_between(1, 1_000)] = 1
    """The number of worker processes that a supervisor runs. 1: the process itself is the worker.

    Default: 1.
    """

    drain: Annotated[float | None, parsers.parse_drain] = 25.0
    """How long running jobs may go on after SIGTERM before they are released. None ("forever"): no limit.

    Default: 25 seconds.
    """

    burst: Annotated[bool, parsers.parse_bool] = False
    """Work until nothing is left to do, by the store, and stop: no job of the worker's queues is due or running. Jobs that are
    due later, retries included, are left.

    Default: false; a worker goes on until it is asked to stop.
    """

    max_jobs: Annotated[int | None, parsers.parse_limit] = None
    """The number of jobs after which a worker process drains and is replaced: by its supervisor, or, where there is none, by
    whoever starts it again after exit code 71.

    Default: None; no limit.
    """

    max_memory: Annotated[int | None, parsers.parse_size] = None
    """The resident memory, such as 512MB, above which a worker process drains and is replaced, as with `max_jobs`.

    Default: None; no limit.
    """

    health: Annotated[str | None, parsers.parse_health] = None
    """HOST:PORT on which `drumbeat run` answers probes (/live, /ready), or the path of a file that it writes every second.

    Default: None.
    """

    heartbeat: Annotated[float, parsers.duration_at_least(0.05)] = 1.0
    """The delay between the end of one heartbeat and the start of the next.

    Default: 1 second.
    """

    dead_after: Annotated[float, parsers.duration_at_least(0.5)] = 10.0
    """How long an instance must send no heartbeat, while another one observes it, to be declared dead.

    Default: 10 seconds.
    """

    poll: Annotated[float, parsers.duration_at_least(0.01)] = 2.0
    """How long a fetcher sleeps when nothing wakes it. Wake-ups normally come first; this is the fallback.

    Default: 2 seconds: with the heartbeat an idle worker sends less than 2 statements a second.
    """

    leader_lease: Annotated[float, parsers.duration_at_least(0.5)] = 5.0
    """How long a leader leads after its last heartbeat, which renews it; at least three heartbeats, and at most `dead_after`
    less two.

    Default: 5 seconds.
    """

    max_failed_beats: Annotated[int, parsers.int_between(1, 1_000_000)] = 30
    """The number of failed heartbeats in a row after which `drumbeat run`, with nothing running, exits with code 75.

    Default: 30.
    """

    lock_lease: Annotated[float, parsers.duration_at_least(0.3)] = 15.0
    """How long a process may be silent before its locks are granted to the next waiters; `app.lock(lease=...)` overrides it.

    Default: 15 seconds.
    """

    lock_renew: Annotated[float, parsers.duration_at_least(0.1)] = 5.0
    """The interval between two renewals of all locks of a process. At most a third of the lease.

    Default: 5 seconds.
    """

    retention: Annotated[float, parsers.duration_at_least(0)] = 7 * 86_400.0
    """How long the history of finished jobs is kept. Dead letters are kept until an operator resolves them.

    On PostgreSQL a day with more than 8 MB of history is dropped as a whole, when all of it is older.

    Default: 7 days.
    """

    audit_retention: Annotated[float, parsers.duration_at_least(0)] = 90 * 86_400.0
    """How long the audit log is kept.

    Default: 90 days.
    """

    crash_limit: Annotated[int, parsers.int_between(1, 1_000)] = 3
    """The number of crashes of worker processes, attributed to one job, that make it a dead letter.

    Default: 3.
    """

    retries: Annotated[int, parsers.int_between(0, parsers.MAX_RETRIES)] = 3
    """How often a failed job is retried whose task does not say it: `@app.task(retries=...)` overrides it.

    Default: 3.
    """

    backoff: Annotated[Backoff, parsers.parse_backoff_setting] = Backoff()
    """The delays before retries of tasks that do not say it: a list such as `1s,5s,30s`, or `base=1s,cap=30s`.

    Default: base=1s,cap=30s.
    """

    payload_limit: Annotated[int, parsers.int_between(1_024, parsers.MAX_PAYLOAD_LIMIT)] = 256 * 1024
    """The maximum size in bytes of a job's arguments, as JSON; the same for its result.

    Default: 256 KiB.
    """

    wait_for_version: Annotated[float, parsers.duration_at_least(0)] = 86_400.0
    """How long a job whose arguments this version cannot decode waits for a worker that can.

    Default: 24 hours.
    """

    log_level: Annotated[str, parsers.one_of("debug", "info", "warning", "error")] = "info"
    """What `drumbeat` commands log: debug, info, warning, error. The library itself never configures logging.

    Default: info.
    """

    log_format: Annotated[Literal["text", "json"], parsers.one_of("text", "json")] = "text"
    """How `drumbeat` commands log: readable lines, or one JSON object per line.

    Default: text.
    """

    dashboard: Annotated[str, parsers.parse_address] = "127.0.0.1:7777"
    """HOST:PORT that `drumbeat dashboard` listens on. Any host but loopback needs tokens or a proxy.

    Default: 127.0.0.1:7777.
    """

    dashboard_tokens: Annotated[tuple[str, ...], parsers.parse_tokens] = ()
    """Who may use the dashboard and its API, as `name:role:token,...`; the roles are viewer, operator and admin. Instead of a
    token, `sha256:` and its hash. Only hashes are kept in memory.

    Default: none; then only this machine may use it, without a login.
    """

    dashboard_proxy: Annotated[str | None, parsers.parse_header] = None
    """The header in which a proxy names the caller, such as X-Forwarded-User.

    Default: None; no header is trusted.
    """

    dashboard_proxy_role: Annotated[str, parsers.parse_role_or_header] = "viewer"
    """The role of callers that the proxy names: viewer, operator or admin, or the header in which the proxy names it.

    Default: viewer.
    """

    dashboard_proxy_from: Annotated[tuple[str, ...], parsers.parse_networks] = ("127.0.0.1", "::1")
    """Addresses or networks from which that header is trusted.

    Default: 127.0.0.1 and ::1.
    """

    dashboard_hosts: Annotated[tuple[str, ...], parsers.parse_hosts] = ()
    """Host names besides localhost that browsers may use, such as jobs.example.com; .example.com for all subdomains.

    Default: none; addresses are always allowed.
    """

    origin: dict[str, str] = {}
    """Where each value came from: `settings.origin["url"] == "environment DRUMBEAT_URL"`."""

    declared_queues: frozenset[str] = frozenset()
    """Queues that any of flags, code, environment or `.env` names: a worker that takes only some may enqueue to all."""

    def queue_weights(self, named: Iterable[str] = ()) -> dict[str, int]:
        """The weight of every queue to take: those of `queues`, or if there are none, those that tasks use."""
        return self.queues or {queue: parsers.default_weight(queue) for queue in sorted(named)}


class SettingsOptions(TypedDict, total=False):
    """Settings that are rarely set in code; `Settings` documents them."""

    queues: str | Mapping[str, int] | Iterable[str]
    strict: bool
    role: Literal["both", "worker", "controller"]
    concurrency: int
    batch: int
    processes: int
    drain: Duration | Literal["forever"]
    burst: bool
    max_jobs: int
    max_memory: int | str
    health: str
    heartbeat: Duration
    dead_after: Duration
    lock_lease: Duration
    lock_renew: Duration
    poll: Duration
    leader_lease: Duration
    max_failed_beats: int
    retention: Duration
    audit_retention: Duration
    crash_limit: int
    retries: int
    backoff: Backoff | Delays | str
    payload_limit: int
    wait_for_version: Duration
    log_level: str
    log_format: Literal["text", "json"]
    outbox: str
    dashboard: str
    dashboard_tokens: str | Iterable[str]
    dashboard_proxy: str
    dashboard_proxy_role: str
    dashboard_proxy_from: str | Iterable[str]
    dashboard_hosts: str | Iterable[str]


STORE_SETTINGS = ("url", "coordination", "namespace", "outbox")
"""Settings that decide where jobs are stored."""
DERIVED = ("origin", "declared_queues")
NAMES = tuple(field.name for field in msgspec.structs.fields(Settings) if field.name not in DERIVED)
PARSERS: dict[str, Callable[[object], Any]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Settings, include_extras=True).items() if name in NAMES
}
