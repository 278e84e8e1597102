"""The statements of the SQLite engine, and where the values of their columns come from."""

from functools import lru_cache

from drumbeat.store import job_columns, sqlfile
from drumbeat.store.job_columns import LISTS, NEW
from drumbeat.store.sqlfile import Columns, EngineStatements, Source

NULLABLE_COLUMNS = tuple(name for name in NEW if job_columns.may_be_null(name))
REQUIRED_COLUMNS = tuple(name for name in NEW if name not in NULLABLE_COLUMNS)
_INSERT_COLUMNS = (*REQUIRED_COLUMNS, *NULLABLE_COLUMNS)
"""Columns of a row of `insert`. NULL stands for None only in the latter."""
ROW_COLUMNS = ("id", "args", "key")
"""What differs between jobs of `insert_similar`; all other fields are its parameters from ?2 on."""
SHARED_COLUMNS = tuple(name for name in NEW if name not in ROW_COLUMNS)


NODE_COLUMNS = ("open_parents", "is_parent", "binds")
"""What follows in the rows of jobs that have parents or children."""


def _insert_source(expressions: dict[str, str], node: dict[str, str] | None = None) -> Source:
    """The values of a new live row; expressions: of NewJob's fields; node: of NODE_COLUMNS."""
    due = f"ifnull({expressions['run_at']}, ?1 + {expressions['delay']})"
    times = {"created_at": "?1", "due_at": due, "run_at": due, "state": "'pending'", "claimed_at": "NULL"}
    times["expires_at"] = f"ifnull({expressions['expires_at']}, {due} + {expressions['expires']})"
    defaults = {
        name: job_columns.literal(job_columns.default_of(name))
        for name in job_columns.LIVE
        if name not in NEW and name not in times
    }
    if node is not None:
        defaults |= node | {"blocked_on": f"CASE WHEN {node['open_parents']} > 0 THEN 'parents' END"}
    return Source(expressions | defaults | times)


def _node(first: int) -> dict[str, str]:
    columns = {name: f"column{number}" for number, name in enumerate(NODE_COLUMNS, start=first)}
    return columns | {"open_parents": f"nullif({columns['open_parents']}, -1)"}


def _column(number: int, name: str) -> str:
    return f"nullif(column{number}, -1)" if name in NULLABLE_COLUMNS else f"column{number}"


_PREVIEWS = {name: f"substr(job.{name}, 1, :preview)" for name in job_columns.LONG_TEXTS}
_ROW = {name: _column(number, name) for number, name in enumerate(_INSERT_COLUMNS, start=1)}
_SHARED = {name: _column(number, name) for number, name in enumerate(ROW_COLUMNS, start=1)} | {
    name: f"?{number}" for number, name in enumerate(SHARED_COLUMNS, start=2)
}
COLUMNS = Columns(
    LISTS | {"node": (*NEW, *NODE_COLUMNS)},
    {
        "placeholders": Source(dict.fromkeys((*NEW, *NODE_COLUMNS), "?")),
        "row": _insert_source(_ROW),
        "shared": _insert_source(_SHARED),
        "node": _insert_source(_ROW, _node(len(_INSERT_COLUMNS) + 1)),
        "shared_node": _insert_source(_SHARED, _node(len(ROW_COLUMNS) + 1)),
        "live_record": Source(
            _PREVIEWS | {"started_at": "job.claimed_at"} | dict.fromkeys(job_columns.ONLY_ENDED, "NULL"), "job"
        ),
        "ended_record": Source(_PREVIEWS | dict.fromkeys(job_columns.ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f":{name}" for name in LISTS["definition"]}),
    },
)
SQL = sqlfile.load_engine("drumbeat.store.sqlite.sql", COLUMNS, "fragments.sql")


@lru_cache(maxsize=8)
def statements(namespace: str) -> EngineStatements:
    return sqlfile.change_names(SQL, lambda text: in_namespace(text, namespace))


def in_namespace(text: str, namespace: str) -> str:
    """The same SQL for the tables of another namespace."""
    return text.replace(sqlfile.PREFIX, f"{namespace}_")
