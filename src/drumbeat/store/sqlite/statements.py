"""The names of all statements; a name that is missing here or in its `.sql` file stops the import."""

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.searching import SearchSql

_PACKAGE = "drumbeat.store.sqlite.sql"


class JobSql(msgspec.Struct, frozen=True, kw_only=True):
    add: str
    add_alike: str
    added_after: str
    known: str
    holders: str
    finish: str
    succeed: str
    finished_after: str
    delete_finished: str
    delete_jobs: str
    rearm_after_finished: str
    rearm_after_dead: str
    die: str
    give_back: str
    keep_attempts: str
    held: str
    held_by: str
    recorded: str
    count_refused: str
    pick: str
    pick_waiting: str
    claim: str
    rename: str
    end_waits: str
    claimed: str
    next_due: str
    never_due: str
    running: str
    note: str
    states: str
    live_of_keys: str
    cancel_pending: str
    request_cancel: str
    run_now: str
    dead_letters: str
    revive: str
    keep_last_attempts: str
    discard: str
    delete_dead: str
    ended: str
    pruned_before: str
    waited_too_long: str
    prunable: str
    prune_attempts: str
    prune: str
    keep_pruned_before: str
    pause: str
    resume: str


class InstanceSql(msgspec.Struct, frozen=True, kw_only=True):
    register: str
    beat: str
    pulse: str
    pulse_own: str
    pulse_cancels: str
    pulse_waiting: str
    pulse_peers: str
    pulse_leader: str
    lead: str
    give_up_lead: str
    end: str
    tell_end: str
    leave_rooms: str
    forget: str
    addresses: str


class SqliteSearchSql(SearchSql, frozen=True, kw_only=True):
    live_ids: str
    history_ids: str
    dead_ids: str


class InspectSql(msgspec.Struct, frozen=True, kw_only=True):
    live_record: str
    history_record: str
    dead_record: str
    attempts: str
    queues: str
    due: str
    pauses: str
    tasks: str
    instances: str
    groups: str
    leader: str
    ahead: str


class ScheduleSql(msgspec.Struct, frozen=True, kw_only=True):
    put_new: str
    put_changed: str
    declare: str
    missing: str
    change: str
    get: str
    page: str
    due: str
    next_at: str
    shortest: str
    standing: str
    recorded: str
    enqueue: str
    let_go: str
    record: str
    move: str
    standing_still: str
    rearm: str
    waiting_for_nobody: str
    succeed: str
    go_on: str
    silent: str
    retire: str
    fires: str
    forgettable: str
    forget: str
    once: str
    once_state: str
    once_done: str


class LockSql(msgspec.Struct, frozen=True, kw_only=True):
    boot_of: str
    open: str
    after_boot: str
    clear: str
    redate: str
    expire: str
    drop_malformed: str
    mend: str
    texts_of_tickets: str
    drop_ticket: str
    texts_of_locks: str
    clear_texts: str
    drop_malformed_grants: str
    admit: str
    renew: str
    lines: str
    standing: str
    shut_window: str
    granted_in_window: str
    heads: str
    grant: str
    note_grant: str
    opens_at: str
    seen: str
    seen_alone: str
    granted: str
    reasons: str
    leave: str
    holding: str
    note_release: str
    idle: str
    forget_tickets: str
    forget_grants: str
    forget_locks: str
    page: str
    tickets: str


class RoomSql(msgspec.Struct, frozen=True, kw_only=True):
    send: str
    addresses: str
    has_any: str
    first: str
    take: str
    waiting: str
    withdraw: str
    prune: str


class AuditSql(msgspec.Struct, frozen=True, kw_only=True):
    release_key: str
    begin: str
    holder: str
    end: str
    get: str
    page: str
    page_of_who: str
    page_of_target: str
    prune: str


class MalformedSql(msgspec.Struct, frozen=True, kw_only=True):
    jobs: str
    history: str
    letters: str
    schedules: str
    instances: str
    acts: str
    tickets: str
    locks: str
    rollups: str
    messages: str
    pauses: str


class StatsSql(msgspec.Struct, frozen=True, kw_only=True):
    is_in_state: str
    written: str
    run_ends: str
    put: str
    read: str
    overall: str
    prune: str
    foldable: str
    folded: str
    drop: str


class FactSql(msgspec.Struct, frozen=True, kw_only=True):
    journal_mode: str


class SchemaSql(msgspec.Struct, frozen=True, kw_only=True):
    has_meta: str
    version: str
    oldest_code: str
    keep: str


JOBS = sqlfile.load(JobSql, _PACKAGE, "jobs.sql")
INSTANCES = sqlfile.load(InstanceSql, _PACKAGE, "instances.sql")
INSPECT = sqlfile.load(InspectSql, _PACKAGE, "inspect.sql")
SEARCH = sqlfile.load(SqliteSearchSql, _PACKAGE, "search.sql")
SCHEDULES = sqlfile.load(ScheduleSql, _PACKAGE, "schedules.sql")
LOCKS = sqlfile.load(LockSql, _PACKAGE, "locks.sql")
ROOMS = sqlfile.load(RoomSql, _PACKAGE, "rooms.sql")
AUDIT = sqlfile.load(AuditSql, _PACKAGE, "audit.sql")
STATS = sqlfile.load(StatsSql, _PACKAGE, "stats.sql")
MALFORMED = sqlfile.load(MalformedSql, _PACKAGE, "malformed.sql")
FACTS = sqlfile.load(FactSql, _PACKAGE, "facts.sql")
SCHEMA = sqlfile.load(SchemaSql, _PACKAGE, "schema.sql")
