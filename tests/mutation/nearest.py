"""Which modules are mutated, and which tests stand nearest to each: those most likely to notice come first.

A test that is parametrised by engines runs only on those named here: PostgreSQL and Valkey cost a start of a server.
"""

import re
from pathlib import Path

import msgspec

from tests.planting import ROOT

# The modules that keep promises.
MUTATED = re.compile(r"(core|store|worker|locks|controller)/|(heartbeat\.py|web/access\.py)$")
NOT_MUTATED = re.compile(r"store/protocol/|__init__\.py$")

# Tests that compare the text of the source with what is checked in notice every edit, and show nothing. The last one is half of
# the time of tests/worker: it runs where it is asked for by name.
LEFT_OUT = frozenset(
    {"test_schema.py", "test_enqueue_path.py", "test_query_plans.py", "test_plans.py", "test_rude_handlers.py"}
)

ENGINE_IDS = {"sqlite": "sqlite", "postgres": "postgres", "redis": "valkey"}


class Nearest(msgspec.Struct, frozen=True):
    tests: tuple[str, ...]
    """Files and folders, in the order in which they run."""
    engines: frozenset[str]


def is_mutated(file: str) -> bool:
    return MUTATED.match(file) is not None and NOT_MUTATED.search(file) is None


# What an engine's module is about, by its name, and the tests of that; {engine}: those of its own engine, where there are some.
SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        r"claim|handoff|running_jobs|level",
        (
            "contract/test_claim.py",
            "engines/{engine}/test_claim_races.py",
            "engines/{engine}/test_parked_claims.py",
            "contract/test_clock_steps.py",
            "contract/test_races.py",
            "contract/test_instances.py",
        ),
    ),
    (
        r"complet|transition|outcome|history",
        (
            "contract/test_outcomes.py",
            "contract/test_rules_transitions.py",
            "contract/test_history.py",
            "contract/test_races.py",
        ),
    ),
    (
        r"transactional|job_transaction",
        (
            "contract/test_inside.py",
            "engines/{engine}/test_transactional.py",
            "engines/{engine}/test_transactions.py",
            "contract/test_series_inside.py",
            "app/test_enqueue.py",
        ),
    ),
    (
        r"insert|add_jobs|uniq|enqueue|lineage|copy_format|json_guard",
        (
            "contract/test_add.py",
            "engines/{engine}/test_unique.py",
            "contract/test_rules_uniqueness.py",
            "contract/test_races.py",
        ),
    ),
    (
        r"lock|ticket|acquire|turns",
        ("contract/test_locks.py", "engines/{engine}/test_locks.py", "contract/test_clock_steps.py", "locks"),
    ),
    (r"instance|heartbeat|leader", ("contract/test_instances.py", "contract/test_election.py")),
    (r"room|message|inbox", ("contract/test_rooms.py", "worker/test_rooms.py")),
    (
        r"schedule|fire|series",
        (
            "contract/test_firing.py",
            "contract/test_schedules.py",
            "contract/test_rules_schedules.py",
            "contract/test_series.py",
            "contract/test_schedules_alike.py",
            "contract/test_schedule_races.py",
        ),
    ),
    (r"wake", ("contract/test_wake.py",)),
    (
        r"search|filter|finder|find_job|list_job|count|list_|get_jobs|scan|job_reads|cached",
        ("contract/test_search.py", "contract/test_inspect.py", "contract/test_dead.py"),
    ),
    (
        r"inspect|overview|rows|record|column",
        ("contract/test_inspect.py", "contract/test_overview.py", "contract/test_preview.py"),
    ),
    (r"stats|run_ends|totals", ("contract/test_stats.py",)),
    (r"audit|act\b|acts", ("contract/test_audit.py",)),
    (r"health|schema|boot|connection|pool", ("contract/test_facts.py",)),
    (
        r"dead|replay|discard|prune|cancel|jobs",
        ("contract/test_dead.py", "contract/test_cancel.py", "contract/test_history.py"),
    ),
    (
        r"malformed|row_decoder",
        (
            "unit/test_find_faults.py",
            "engines/sqlite/test_malformed.py",
            "engines/test_malformed.py",
        ),
    ),
)

# For modules that are no engine's: a pattern of the file, the tests, the engines.
PARTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (r"core/observer", ("unit/test_observer.py", "contract/test_instances.py", "system/test_zombies.py"), ("sqlite",)),
    (
        r"core/transitions",
        ("unit/test_transitions.py", "contract/test_outcomes.py", "contract/test_rules_transitions.py"),
        ("sqlite", "valkey"),
    ),
    (
        r"core/turns",
        (
            "unit/test_turns.py",
            "contract/test_locks.py",
        ),
        ("sqlite", "valkey"),
    ),
    (r"core/uniqueness", ("contract/test_rules_uniqueness.py", "contract/test_add.py"), ("sqlite", "valkey")),
    (
        r"core/(overlap|schedule)",
        ("contract/test_rules_schedules.py", "contract/test_firing.py", "contract/test_series.py"),
        ("sqlite", "valkey"),
    ),
    (
        r"core/stats",
        ("contract/test_stats.py", "web/test_percentiles.py", "web/test_metrics.py", "app/test_stats.py"),
        ("sqlite",),
    ),
    (r"core/", ("unit", "contract", "app"), ("sqlite",)),
    (
        r"worker/fetcher|worker/prefetch|worker/buffer",
        ("unit/test_fetcher.py", "unit/test_fetcher_states.py", "unit/test_prefetch.py", "worker/test_buffer.py"),
        ("sqlite",),
    ),
    (r"worker/queue_weights", ("unit/test_queue_weights.py", "worker/test_fairness.py"), ("sqlite",)),
    (
        r"worker/result|worker/job_completer",
        ("unit/test_result.py", "worker/test_transactions.py", "worker/test_aborted_runs.py"),
        ("sqlite",),
    ),
    (
        r"worker/crash",
        ("unit/test_crash_suspects.py", "worker/test_crash_journal.py", "system/test_crashes.py"),
        ("sqlite",),
    ),
    (r"worker/store_clock", ("unit/test_store_clock.py",), ("sqlite",)),
    (r"worker/stats_recorder", ("worker/test_stats_recorder.py", "app/test_stats.py"), ("sqlite",)),
    (
        r"worker/(main|event_loop|process_guard)",
        ("worker/test_rude_handlers.py", "unit/test_process_guard.py", "system/test_shutdown.py"),
        ("sqlite",),
    ),
    (
        r"worker/child",
        (
            "worker/test_child.py",
            "worker/test_child_pool.py",
            "worker/test_child_runner.py",
            "worker/test_rude_handlers.py",
        ),
        ("sqlite",),
    ),
    (r"worker/burst", ("system/test_burst.py",), ("sqlite",)),
    (r"worker/room", ("worker/test_rooms.py",), ("sqlite",)),
    (r"worker/around", ("worker/test_around.py",), ("sqlite",)),
    (
        r"worker/(store_loop|reporter|commit_check)",
        ("worker/test_store_outages.py", "worker/test_faults.py", "worker/test_transactions.py"),
        ("sqlite", "postgres"),
    ),
    (
        r"worker/(shutdown|supervised|worker|lifespans|parts|fork)",
        (
            "worker/test_lifecycle.py",
            "system/test_shutdown.py",
            "system/test_crashes.py",
            "system/test_supervisor.py",
        ),
        ("sqlite",),
    ),
    (r"locks/local", ("locks/test_local.py",), ("sqlite",)),
    (r"locks/", ("locks",), ("sqlite", "valkey")),
    (r"controller/startup", ("controller/test_startup.py",), ("sqlite",)),
    (r"controller/firer", ("controller/test_firer.py", "controller/test_two_controllers.py"), ("sqlite",)),
    (r"controller/elector", ("controller/test_elector.py", "controller/test_roles.py"), ("sqlite",)),
    (r"controller/", ("controller",), ("sqlite",)),
    (
        r"heartbeat",
        ("contract/test_instances.py", "worker/test_store_outages.py", "controller", "worker/test_lifecycle.py"),
        ("sqlite",),
    ),
    (
        r"web/access",
        (
            "web/test_access.py",
            "web/test_roles.py",
            "web/test_attacks.py",
            "web/test_mounted.py",
            "web/test_connections.py",
            "web/test_open.py",
            "web/test_hostile.py",
        ),
        ("sqlite",),
    ),
    (r"store/coordinated", ("engines/test_coordinated.py", "contract"), ("pair", "sqlite")),
    (r"store/urls|store/driver_kinds", ("engines", "unit/test_settings.py", "app/test_lifecycle.py"), ("sqlite",)),
    (
        r"store/sqlfile|store/migrations",
        ("engines/test_sqlfile.py", "engines/test_migrate.py", "engines/postgres/test_migrations.py"),
        ("sqlite",),
    ),
)

# After those of its own subject: what runs the whole of each part.
GENERAL = {
    "core": ("contract", "unit", "controller"),
    "worker": ("worker", "unit/test_fetcher.py", "system/test_shutdown.py"),
    "locks": ("locks", "contract/test_locks.py", "worker/test_lifecycle.py", "system/test_locks.py"),
    "controller": ("controller", "app/test_schedules.py", "worker/test_lifecycle.py"),
    "heartbeat.py": ("worker", "locks", "system/test_zombies.py"),
    "web": ("web/test_api_jobs.py", "web/test_pages.py"),
    "store": ("contract", "engines/test_malformed.py", "unit", "app", "web/test_metrics.py"),
}


def find_nearest(file: str) -> Nearest:
    part = file.split("/")[0]
    engine = re.match(r"store/(sqlite|postgres|redis)/", file)
    if engine is not None:
        ids = {ENGINE_IDS[engine[1]]}
        own = f"engines/{engine[1]}"
        tests = [
            f"{own}/test_{Path(file).stem}.py",
            *(test.replace("{engine}", engine[1]) for test in _find_subject(file)),
            "contract",
            own,
            "engines/test_malformed.py",
            "app",
            "worker/test_transactions.py",
        ]
    else:
        found = next(((tests, engines) for pattern, tests, engines in PARTS if re.match(pattern, file)), None)
        first, engines = found or (_find_subject(file), ("sqlite",))
        ids = set(engines)
        tests = [*first, *GENERAL[part]]
    return Nearest(tests=tuple(_list_files(tests)), engines=frozenset(ids))


def _find_subject(file: str) -> tuple[str, ...]:
    name = Path(file).stem
    return next((tests for pattern, tests in SUBJECTS if re.search(pattern, name)), ())


def _list_files(tests: list[str]) -> list[str]:
    """Folders as their files: of a folder and a file in it pytest keeps the folder alone, and with it its own order."""
    files: dict[str, None] = {}
    for test in tests:
        path = ROOT / "tests" / test
        inside = sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.exists() else []
        found = (file for file in inside if file == path or file.name not in LEFT_OUT)
        files |= dict.fromkeys(file.relative_to(ROOT).as_posix() for file in found)
    return list(files)
