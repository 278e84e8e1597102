"""Results of parents as arguments: loaded before the run, spliced into the stored arguments, decoded by the child's own types.

    store loop --load_ahead-------->
                                     ParentResults --load_results--> store       for jobs with ClaimedJob.binds only
    runner --take_bound, decode---->       |
                                     the arguments as JSON, or the reason why the job cannot run: it is a dead letter at once

What is claimed together is loaded together, before it is given to slots: a slot that waits for the store is a slot that runs
nothing, and jobs that come in dribs and drabs end so, which makes small reports of them. Nearly always a slot finds the
arguments ready (`take_bound`); `decode` is for all else: results that are read in pages or cannot be used, a load that failed.

`Results[R]` is not loaded: the handler reads it in pages through its `StepPort`, in a child process by messages to its worker.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from drumbeat.codec import Results, Undecodable, decode_result, make_storable
from drumbeat.codec.hints import format_hint
from drumbeat.codec.parent_values import attach_pages, is_outcome, is_results, item_type
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.dependencies import Binding, ParentResult
from drumbeat.core.job import Failure, JobState
from drumbeat.errors import StoreError
from drumbeat.ids import JobId
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import DependencyStore
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.job_steps import StepPort
from drumbeat.worker.result import HandlerResult, ParentResultUnusable, ResultKind
from drumbeat.worker.task_spec import Arguments, TaskSpec

MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Of all results that one job gets as arguments, and of one page of `Results`."""
MAX_LIST_BYTES = 1024 * 1024
MAX_PAGE = 1_000
MAX_AHEAD_BYTES = 8 * 1024 * 1024
"""Of results that are loaded before their jobs have a slot, by the size of those before."""
MIN_USUAL_BYTES = 1_000
FIRST_PAGE = 100
"""Results of the first page, by whose size the next is chosen."""
_encode = msgspec.json.Encoder().encode
_decode_args = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


DecodedJob = tuple[str | None, Arguments | HandlerResult | Outcome]
"""The arguments of a job with what it gets of its parents: as JSON, for a child process, and decoded; or why it cannot run."""


class BoundJob(NamedTuple):
    """The arguments of a job with what it gets of its parents."""

    args: str
    """JSON, as `ClaimedJob.args`; the place of `Results` says how many they are, and of which argument."""
    given: dict[str, ParentResult]
    """By argument; of lists and `Results` the first of its results."""


class ParentResults:
    """Loads for all slots: what is asked for while a call to the store is under way goes together in the next."""

    name = "parent results"

    def __init__(self, core: WorkerCore, store: DependencyStore, port: StepPort) -> None:
        """`port`: where `Results` are read from."""
        self._store = store
        self._port = port
        self._backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._waiting: dict[JobId, list[asyncio.Future[list[ParentResult]]]] = {}
        self._ahead: dict[JobId, list[ParentResult]] = {}
        """Of claimed jobs that no slot has asked for yet, oldest first; those that never start are dropped in time."""
        self._usual_bytes = 64 * 1024
        self._wakeup = asyncio.Event()
        self._is_closed = False

    async def load_ahead(self, jobs: Iterable[ClaimedJob]) -> None:
        """These have been claimed, and go to slots next. What cannot be loaded now is loaded for the slot."""
        limit = max(1, MAX_AHEAD_BYTES // self._usual_bytes)
        bound = [job.id for job in jobs if job.binds]
        try:
            found = await self._store.load_results(bound[:limit])
        except StoreError:
            return
        self._record_size(found)
        self._ahead |= found
        for id in list(self._ahead)[:-limit]:
            del self._ahead[id]

    def take_bound(self, job: ClaimedJob) -> str | None:
        """The arguments of a job with what it gets of its parents, as JSON, if that is at hand; None: ask `decode`."""
        results = self._ahead.get(job.id)
        if results is None or any(result.binding is Binding.RESULTS for result in results):
            return None
        try:
            args = bind_singles(job, results).args
        except ParentResultUnusable:
            return None
        del self._ahead[job.id]
        return args

    async def decode(self, job: ClaimedJob, spec: TaskSpec) -> DecodedJob:
        """Load and decode."""
        try:
            bound = await self._bind(job, spec, await self._load(job.id))
        except ParentResultUnusable as error:
            return None, unusable_result(error.failure)
        decoded = spec.decode_arguments(job, bound.args)
        if isinstance(decoded, tuple):
            attach_results(decoded, spec, job.id, self._port)
        else:
            decoded = find_mismatch(spec, bound) or decoded
        return bound.args, decoded

    async def _bind(self, job: ClaimedJob, spec: TaskSpec, results: Sequence[ParentResult]) -> BoundJob:
        single = [result for result in results if result.binding is not Binding.RESULTS]
        bound = bind_singles(job, single)
        if len(single) == len(results):
            return bound
        args = _decode_args(bound.args)
        for result in results:
            for name in result.argument.split():
                if name in bound.given:
                    continue
                bound.given[name] = result
                if is_results(hint := spec.hints.get(name, Any)):
                    raw = _encode({"argument": name, "count": msgspec.json.decode(args[name])})
                else:
                    raw = await self._load_list(job, name, is_outcome(item_type(hint)))
                args[name] = msgspec.Raw(raw)
        _check_size(job, bound.given, args)
        return bound._replace(args=_encode(args).decode())

    async def _load_list(self, job: ClaimedJob, name: str, as_outcome: bool) -> bytes:
        values: list[msgspec.Raw] = []
        size, place = 0, -1
        while page := await self._read_page(job.id, name, place):
            for result in page:
                raw = value_of(job.task, name, result, as_outcome=as_outcome)
                size += len(raw)
                if size > MAX_LIST_BYTES or len(values) == MAX_BOUND_PARENTS:
                    problem = f"a list holds up to {MAX_BOUND_PARENTS:,} results of {MAX_LIST_BYTES >> 20} MiB together"
                    raise _lost(job.task, name, f"{problem}: annotate it Results[...], which is read in pages")
                values.append(msgspec.Raw(raw))
            place = page[-1].place
        return _encode(values)

    async def _read_page(self, job: JobId, argument: str, after: int) -> list[ParentResult]:
        return await self._backoff.retry(lambda: self._store.page_results(job, argument, after, FIRST_PAGE))

    async def _load(self, job: JobId) -> list[ParentResult]:
        if job in self._ahead:
            return self._ahead.pop(job)
        loaded: asyncio.Future[list[ParentResult]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, []).append(loaded)
        self._wakeup.set()
        return await loaded

    def close(self) -> None:
        """Return from `run`: no slot asks any more."""
        self._is_closed = True
        self._wakeup.set()

    async def run(self) -> None:
        while not self._is_closed:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                found = await self._backoff.retry(lambda ids=tuple(asked): self._store.load_results(ids))  # type: ignore[misc]
                for id, loading in asked.items():
                    for loaded in loading:
                        if not loaded.done():
                            loaded.set_result(found.get(id, []))
                self._record_size(found)

    def _record_size(self, found: Mapping[JobId, list[ParentResult]]) -> None:
        largest = max((sum(map(_size, results)) for results in found.values()), default=0)
        self._usual_bytes = max(MIN_USUAL_BYTES, largest, self._usual_bytes // 2)


def bind_singles(job: ClaimedJob, results: Iterable[ParentResult]) -> BoundJob:
    """`results`: none of them is read in pages.

    Raises:
        ParentResultUnusable: nothing is kept of a parent, it has failed, or they are too large together.
    """
    args = _decode_args(job.args)
    given: dict[str, ParentResult] = {}
    for result in results:
        for name in result.argument.split():
            if name not in given:
                given[name] = result
                args[name] = msgspec.Raw(value_of(job.task, name, result, as_outcome=result.binding is Binding.OUTCOME))
    _check_size(job, given, args)
    return BoundJob(_encode(args).decode(), given)


def _check_size(job: ClaimedJob, given: Iterable[str], args: Mapping[str, msgspec.Raw]) -> None:
    total = 0
    for name in given:
        total += len(memoryview(args[name]))
        if total > MAX_TOTAL_BYTES:
            problem = f"the results that it gets are more than {MAX_TOTAL_BYTES >> 20} MiB together"
            raise _lost(job.task, name, f"{problem}: keep large values elsewhere, and return where they are")


def _size(result: ParentResult) -> int:
    return len(result.result or "") + (0 if result.error is None else len(result.error.traceback))


def value_of(task: str, argument: str, result: ParentResult, *, as_outcome: bool) -> bytes:
    """The JSON of what one parent gives.

    Raises:
        ParentResultUnusable: nothing is kept of it, or it has failed.
    """
    if result.state is None:
        raise _lost(task, argument, f"nothing is kept of {_name(result)}: its history was pruned")
    if as_outcome:
        error = result.error
        if result.result_error is not None:
            error = Failure("ResultNotKept", result.result_error)
        outcome: dict[str, Any] = {
            "id": result.parent,
            "task": result.task,
            "state": result.state.value,
            "error": error,
        }
        if result.result is not None:
            outcome["value"] = msgspec.Raw(result.result.encode())
        return _encode(outcome)
    if result.state is not JobState.SUCCEEDED:
        raise _lost(task, argument, f"{_name(result)} ended as {result.state}, and has no result")
    if result.result_error is not None:
        raise _lost(task, argument, f"the result of {_name(result)} was not kept: {result.result_error}")
    return b"null" if result.result is None else result.result.encode()


def _name(result: ParentResult) -> str:
    return f"its parent {result.parent} (task {result.task})"


def _lost(task: str, argument: str, problem: str) -> ParentResultUnusable:
    return ParentResultUnusable(Failure("ParentResultLost", f"{task}: argument {argument!r}: {problem}"))


def unusable_result(failure: Failure) -> HandlerResult:
    return HandlerResult(kind=ResultKind.UNDECODABLE, error=failure)


def find_mismatch(spec: TaskSpec, bound: BoundJob) -> HandlerResult | None:
    """The arguments cannot be decoded: which result of a parent is to blame; None: none of them."""
    args = _decode_args(bound.args)
    for name, result in bound.given.items():
        hint = spec.hints.get(name, Any)
        if is_results(hint):
            continue
        try:
            decode_result(bytes(args[name]), hint, spec.codec)
        except Undecodable as error:
            return unusable_result(_mismatch(spec, name, hint, result, error))
    return None


def _mismatch(spec: TaskSpec, name: str, hint: Any, result: ParentResult, error: Undecodable) -> Failure:
    gives = "the results of its parents, such as" if result.binding is Binding.RESULTS else "what it gets of its parent"
    problem = f"must be {format_hint(hint)}, and {gives} {result.parent} (task {result.task}) is not: {error.reason}"
    return Failure("ParentResultMismatch", make_storable(f"{spec.name}: argument {name!r} {problem}", 4_000))


class BoundPages:
    """Where one `Results` of a running job reads from. A `codec.parent_values.ResultPages`."""

    def __init__(self, port: StepPort, job: JobId, argument: str, spec: TaskSpec) -> None:
        self._port = port
        self._job = job
        self._argument = argument
        self._spec = spec
        self._item = item_type(spec.hints.get(argument, Any))
        self._limit = FIRST_PAGE

    async def read(self, after: int) -> list[tuple[int, Any]]:
        return self._decode(await self._port.page_results(self._job, self._argument, after, self._limit))

    def read_sync(self, after: int) -> list[tuple[int, Any]]:
        return self._decode(self._port.page_results_sync(self._job, self._argument, after, self._limit))

    def _decode(self, page: Sequence[ParentResult]) -> list[tuple[int, Any]]:
        decoded, size = [], 0
        as_outcome = is_outcome(self._item)
        for result in page:
            raw = value_of(self._spec.name, self._argument, result, as_outcome=as_outcome)
            size += len(raw)
            try:
                decoded.append((result.place, decode_result(raw, self._item, self._spec.codec)))
            except Undecodable as error:
                failure = _mismatch(self._spec, self._argument, self._item, result, error)
                raise ParentResultUnusable(failure) from error
        if size:
            self._limit = min(MAX_PAGE, max(1, MAX_TOTAL_BYTES * len(page) // size))
        return decoded


def attach_results(arguments: Arguments, spec: TaskSpec, job: JobId, port: StepPort) -> None:
    """Let the `Results` among these arguments be read."""
    for value in (*arguments[0], *arguments[1].values()):
        if type(value) is Results and value.argument is not None:
            attach_pages(value, BoundPages(port, job, value.argument, spec))
