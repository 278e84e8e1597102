"""`app.tasks`: the functions that jobs call."""

from __future__ import annotations

import builtins
import functools
import inspect
from typing import Annotated, Any, Unpack

import msgspec

from drumbeat.codec import JsonCodec, Signature
from drumbeat.codec.hints import format_hint
from drumbeat.codec.stored_types import Unkeepable, is_model, is_stored, stored_as
from drumbeat.core.field_doc import doc
from drumbeat.core.job_query import TaskStats
from drumbeat.errors import UnknownTask
from drumbeat.names import check_name
from drumbeat.redaction import HIDDEN, is_secret
from drumbeat.tasks import Task

from .history import RunPage, RunQuery, history_page
from .part import AdminPart


class ParameterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a task."""

    name: str
    type: Annotated[str, doc("As it is annotated: `int`, `list[str]`.")]
    required: bool
    schema: Annotated[dict[str, Any], doc("JSON Schema of its value; empty: anything.")]
    default: Annotated[
        str | None,
        doc("JSON text; None: it is required, or its default is no JSON, or its name is that of a secret."),
    ] = None


class TaskInfo(TaskStats, frozen=True, kw_only=True):
    """A task: the numbers of its jobs from the store, and its function as far as this program has it."""

    registered: Annotated[bool, doc("Whether this program has it; if not, the fields below are None.")] = False
    call: Annotated[str | None, doc("How it is called: `charge(customer: int, amount: Decimal) -> str`.")] = None
    place: Annotated[str | None, doc("file:line.")] = None
    queue: str | None = None
    priority: int | None = None
    retries: int | None = None
    timeout: Annotated[float | None, doc("Seconds; None: no limit.")] = None
    pool: str | None = None
    batch: int | None = None
    on_dead: str | None = None
    signature: Annotated[
        str | None,
        doc("Changes with the stored form of the arguments. This and `parameters` only by `show`."),
    ] = None
    parameters: Annotated[tuple[ParameterInfo, ...], doc("For a form.")] = ()


class Tasks(AdminPart):
    """List and show tasks."""

    async def list(self) -> builtins.list[TaskInfo]:
        """Every task that this program has, that has jobs, or that a living instance knows, by name."""
        store = await self._client.store()
        stats = {each.name: each for each in await store.inspect.list_tasks()}
        names = stats.keys() | {task.name for task in self._client.registry}
        return [_task_info(name, stats.get(name), self._client.registry.find(name)) for name in sorted(names)]

    async def show(self, name: str) -> TaskInfo:
        """One task.

        Raises:
            UnknownTask: neither this program nor the store knows it.
        """
        known = {info.name: info for info in await self.list()}
        if name not in known:
            raise UnknownTask(name, known)
        return _add_parameters(known[name], self._client.registry.find(name))

    async def history(self, name: str, **query: Unpack[RunQuery]) -> RunPage:
        """The recorded runs of its jobs, newest job first.

        Raises:
            UnknownTask: neither this program nor the store knows it.
        """
        return await history_page(self._client, check_name("task", name), query)


def _task_info(name: str, stats: TaskStats | None, task: Task[..., Any] | None) -> TaskInfo:
    facts: dict[str, Any] = {} if stats is None else msgspec.structs.asdict(stats)
    if task is not None:
        facts |= {
            "registered": True,
            "call": f"{name}{_visible_signature(task)}",
            "place": task.source_location,
            "queue": task.options.queue,
            "priority": task.options.priority,
            "retries": task.options.retries,
            "timeout": None if task.options.timeout_us is None else task.options.timeout_us / 1_000_000,
            "pool": task.options.pool,
            "batch": task.options.batch,
            "on_dead": None if task.on_dead_task is None else task.on_dead_task.name,
        }
    return TaskInfo(**{"name": name, **facts})


class _HiddenDefault:
    def __repr__(self) -> str:
        return HIDDEN


def _visible_signature(task: Task[..., Any]) -> inspect.Signature:
    """The signature, with the defaults of secret parameters hidden."""
    signature = inspect.signature(task.function)
    parameters = signature.parameters.values()
    return signature.replace(
        parameters=[
            each.replace(default=_HiddenDefault()) if _has_secret_default(each) else each for each in parameters
        ]
    )


def _has_secret_default(parameter: inspect.Parameter) -> bool:
    has_one = parameter.default is not inspect.Parameter.empty and parameter.default is not None
    return has_one and is_secret(parameter.name)


def _add_parameters(info: TaskInfo, task: Task[..., Any] | None) -> TaskInfo:
    if task is None:
        return info
    signature = task.signature
    info = msgspec.structs.replace(info, signature=signature.hash)
    if not isinstance(signature, Signature):
        return info
    defaults = {name: each.default for name, each in inspect.signature(task.function).parameters.items()}
    found = (
        ParameterInfo(
            name=each.name,
            type=format_hint(signature.hints[each.name]),
            required=each.required,
            schema=_schema(signature.hints[each.name], signature.codec),
            default=None
            if each.required or is_secret(each.name)
            else _to_json(defaults.get(each.name), signature.codec),
        )
        for each in signature.parameters
    )
    return msgspec.structs.replace(info, parameters=tuple(found))


def _schema(hint: Any, codec: JsonCodec) -> dict[str, Any]:
    try:
        return msgspec.json.schema(hint, schema_hook=functools.partial(_custom_schema, codec))
    except TypeError:
        return {}  # optional: the signature checks arguments, not this schema


def _custom_schema(codec: JsonCodec, kind: type) -> dict[str, Any]:
    if (own := codec.find(kind)) is not None:
        return _schema(own.stored, codec)
    if is_stored(kind):
        return _schema(stored_as(kind), codec)
    if not is_model(kind):
        raise NotImplementedError
    described: dict[str, Any] = kind.model_json_schema()  # type: ignore[attr-defined]
    return described


def _to_json(value: Any, codec: JsonCodec) -> str | None:
    try:
        return codec.encoder.encode(value).decode()
    except (TypeError, ValueError, NotImplementedError, Unkeepable):
        return None
