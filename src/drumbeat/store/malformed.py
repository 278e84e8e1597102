"""Stored records that no version of this library writes: edited by hand, or damaged.

One such record must not hide its neighbours. Engines decode batches at once; only where that fails, each record is read field
by field with `salvage`: a field that cannot be read gets a neutral value and a `Fault`. Such a record is shown with the reason
in a place where people look, a claim makes a dead letter of such a job, and the doctor lists the faults. No I/O here.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from drumbeat.core.job import Failure
from drumbeat.ids import is_job_id

log = logging.getLogger(__name__)

UNDECODABLE = "Undecodable"
"""The type of the error that such a job is shown with."""
UNREADABLE_NAME = "undecodable"
"""Stands for the name of a task or queue that cannot be read."""
MAX_QUOTED = 60
"""Characters of a stored value that a reason quotes."""
_MAX_LOGGED = 1_000
_PRIVATE = frozenset({"args", "result", "progress", "answer", "body"})
"""These may hold secrets: their values are never quoted."""
_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, tuple: (), list: [], dict: {}}
_failure = msgspec.json.Decoder(Failure).decode

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
Faults = list[tuple[str, str]]
"""Field and reason."""


class Fault(msgspec.Struct, frozen=True):
    """One field of one stored record that cannot be read."""

    kind: str
    """"job", "dead letter", "schedule" ...: what people call such a record."""
    id: str
    field: str
    reason: str

    def __str__(self) -> str:
        return f"stored {self.field} cannot be read: {self.reason}"


class RecordKind(msgspec.Struct, Generic[R], frozen=True):
    """How records of one kind are read, and how the doctor checks them."""

    kind: str
    record: type[R]
    id: str = "id"
    """The field that names one."""
    states: tuple[str, ...] = ()
    """Of jobs: the states that belong into its table."""
    repair: Callable[[dict[str, Any], Faults], dict[str, Any] | None] | None = None
    """Completes the values of a row that has faults; if it returns None, the row is left out. Default: neutral values stay."""

    def salvage(self, row: Sequence[Any]) -> tuple[R | None, Faults]:
        """A stored row, its fields in the order of columns, repaired if need be; None: it is left out."""
        values, faults = salvage(self.record, row)
        if not faults:
            return self.record(**values), faults
        log_faults(self.kind, row[self.record.__struct_fields__.index(self.id)], faults)
        repaired = values if self.repair is None else self.repair(values, faults)
        return None if repaired is None else self.record(**repaired), faults

    def read_rows(self, rows: Iterable[Any]) -> list[R]:
        found = (self.salvage(tuple(row))[0] for row in rows)
        return [row for row in found if row is not None]


def drop_row(values: dict[str, Any], faults: Faults) -> None:
    """As `repair`: leaves out rows with faults."""
    return


def repair_names(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """As `repair`: the row is shown, under a name that says that its own cannot be read."""
    return values | {field: values[field] or UNREADABLE_NAME for field in ("name", "task", "queue") if field in values}


def find_faults(kind: RecordKind[Any], records: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """The fields of these records that cannot be read."""
    found: list[Fault] = []
    for record in records:
        faults = salvage(kind.record, record).faults
        if kind.states and record.get("state") not in kind.states and not any(name == "state" for name, _ in faults):
            faults.append(("state", f"{quote(record.get('state'))} is none of such a job"))
        error = record.get("error")
        if isinstance(error, str) and not faults and _is_broken(error):
            faults.append(("error", f"{quote(error)}: no error as JSON"))
        name = record.get(kind.id)
        if kind.states and isinstance(name, str) and not faults and not is_job_id(name):
            faults.append((kind.id, f"{quote(name)} is no id of a job"))
        id = name if isinstance(name, str) and name.isprintable() else quote(name)
        found += [Fault(kind.kind, id, field, reason) for field, reason in faults]
    return found


def _is_broken(error: str) -> bool:
    try:
        _failure(error)
    except (msgspec.DecodeError, UnicodeError):
        return True
    return False


class Salvaged(NamedTuple):
    values: dict[str, Any]
    """By field; one that cannot be read is neutral."""
    faults: Faults


def salvage(record: type[msgspec.Struct], stored: Mapping[str, Any] | Sequence[Any]) -> Salvaged:
    """Read a record field by field; `stored` is by name, or in the order of the fields. Never raises."""
    fields = msgspec.structs.fields(record)
    if not isinstance(stored, Mapping):
        stored = dict(zip((field.name for field in fields), stored, strict=False))
    values: dict[str, Any] = {}
    faults: Faults = []
    for field in fields:
        if field.name not in stored and not field.required:
            continue
        value, reason = read_value(field.name, stored.get(field.name), field.type)
        if reason is not None:
            faults.append((field.name, reason))
        values[field.name] = value
    return Salvaged(values, faults)


def read_value(field: str, stored: Any, kind: Any) -> tuple[Any, str | None]:
    """The value and None, or a neutral value and the reason why it cannot be read."""
    try:
        if isinstance(stored, str):
            stored.encode()
            if get_origin(kind) in (tuple, list, dict):
                return msgspec.json.decode(stored, type=kind), None
        return msgspec.convert(stored, kind), None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        return neutral_value(kind), explain_fault(field, stored, error)


def keep_readable(values: Iterable[Any], kind: type[T]) -> list[T]:
    """Those that are of this type."""
    found = (read_value("value", value, kind) for value in values)
    return [value for value, reason in found if reason is None]


def neutral_value(kind: Any) -> Any:
    """An empty value of this type."""
    if get_origin(kind) is Annotated:
        return neutral_value(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        parts = get_args(kind)
        return None if NoneType in parts else neutral_value(parts[0])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    plain = get_origin(kind) or getattr(kind, "__supertype__", kind)
    return _EMPTY.get(plain)


def undecodable_failure(reason: str) -> Failure:
    """The error of a job whose stored record cannot be read."""
    return Failure(type=UNDECODABLE, message=reason)


def read_failure(text: str | bytes | None) -> Failure | None:
    """The error that is stored as JSON."""
    if text is None:
        return None
    try:
        return _failure(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        return undecodable_failure(join_reasons([("error", explain_fault("error", text, error))]))


def join_reasons(faults: Iterable[tuple[str, str]]) -> str:
    """All of them in one line."""
    return "; ".join(f"stored {field} cannot be read: {reason}" for field, reason in faults)


def quote(stored: Any) -> str:
    """A stored value, whatever it is, short and printable."""
    if isinstance(stored, str | bytes):
        stored = stored[: 4 * MAX_QUOTED]
    shown = ascii(stored) if not isinstance(stored, str) or not stored.isprintable() else f"'{stored}'"
    return shown if len(shown) <= MAX_QUOTED else f"{shown[:MAX_QUOTED]}..."


def explain_fault(field: str, stored: Any, error: Exception) -> str:
    """Why this stored value of a field cannot be read."""
    if stored is None:
        return "it is missing"
    is_private = field in _PRIVATE and isinstance(stored, str | bytes)
    shown = f"{len(stored):,} {'bytes' if isinstance(stored, bytes) else 'characters'}" if is_private else quote(stored)
    if isinstance(error, UnicodeError):
        return f"{shown}: no valid UTF-8"
    return f"{shown}: {str(error).partition(' - at ')[0].replace('`', '')}"


_logged: set[tuple[str, str]] = set()


def log_faults(kind: str, id: Any, faults: Iterable[tuple[str, str]]) -> None:
    """Log that a record cannot be read: once for each, and a thousand in all, so that the log is not flooded."""
    name = (kind, id if isinstance(id, str) and id.isprintable() else quote(id))
    if name in _logged or len(_logged) >= _MAX_LOGGED:
        return
    _logged.add(name)
    log.error(
        "a stored record cannot be read as it is; `drumbeat doctor` says what to do",
        extra={"kind": kind, "record": name[1], "reason": join_reasons(faults)},
    )
