"""The statements of the SQLite engine, and where the values of their columns come from."""

from drumbeat.store import sqlfile
from drumbeat.store.job_columns import (
    LISTS,
    LIVE,
    LONG_TEXTS,
    NEW,
    ONLY_ENDED,
    ONLY_LIVE,
    default_of,
    literal,
    may_be_null,
)
from drumbeat.store.sqlfile import Columns, Source

_PACKAGE = "drumbeat.store.sqlite.sql"
ROW_COLUMNS = ("id", "args", "key")
"""What differs between jobs of `insert_similar`; all other fields are its parameters from ?2 on."""
SHARED_COLUMNS = tuple(name for name in NEW if name not in ROW_COLUMNS)


def _insert_source(expressions: dict[str, str]) -> Source:
    """The values of a new live row; expressions: of NewJob's fields."""
    due = f"ifnull({expressions['run_at']}, ?1 + {expressions['delay']})"
    times = {"created_at": "?1", "due_at": due, "run_at": due, "state": "'pending'", "claimed_at": "NULL"}
    defaults = {name: literal(default_of(name)) for name in LIVE if name not in NEW and name not in times}
    return Source(expressions | defaults | times)


def _column(number: int, name: str) -> str:
    return f"nullif(column{number}, -1)" if may_be_null(name) else f"column{number}"


_PREVIEWS = {name: f"substr(job.{name}, 1, :preview)" for name in LONG_TEXTS}
COLUMNS = Columns(
    LISTS,
    {
        "placeholders": Source(dict.fromkeys(NEW, "?")),
        "row": _insert_source({name: _column(number, name) for number, name in enumerate(NEW, start=1)}),
        "shared": _insert_source(
            {name: _column(number, name) for number, name in enumerate(ROW_COLUMNS, start=1)}
            | {name: f"?{number}" for number, name in enumerate(SHARED_COLUMNS, start=2)}
        ),
        "live_record": Source(_PREVIEWS | {"started_at": "job.claimed_at"} | dict.fromkeys(ONLY_ENDED, "NULL"), "job"),
        "ended_record": Source(_PREVIEWS | dict.fromkeys(ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f":{name}" for name in LISTS["definition"]}),
    },
)


JOBS = sqlfile.load(_PACKAGE, "insert.sql", "claim.sql", "completion.sql", "jobs.sql", columns=COLUMNS)
INSTANCES = sqlfile.load(_PACKAGE, "instances.sql")
INSPECT = sqlfile.load(_PACKAGE, "inspect.sql", columns=COLUMNS)
SEARCH = sqlfile.load(_PACKAGE, "search.sql")
SCHEDULES = sqlfile.load(_PACKAGE, "schedules.sql", columns=COLUMNS)
LOCKS = sqlfile.load(_PACKAGE, "locks.sql")
ROOMS = sqlfile.load(_PACKAGE, "rooms.sql")
AUDIT = sqlfile.load(_PACKAGE, "audit.sql")
STATS = sqlfile.load(_PACKAGE, "stats.sql")
MALFORMED = sqlfile.load(_PACKAGE, "malformed.sql")
HEALTH = sqlfile.load(_PACKAGE, "health.sql")
SCHEMA = sqlfile.load(_PACKAGE, "schema.sql")
