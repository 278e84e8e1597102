"""Results of parents as arguments: loaded before the run, spliced into the stored arguments, decoded by the child's own types.

    runner --decode--> ParentResults --load_results--> store       for jobs with ClaimedJob.binds only
                           |
                       BoundJob: the arguments as JSON, or the reason why the job cannot run: it is a dead letter at once

`Results[R]` is not loaded: the handler reads it in pages through its `StepPort`, in a child process by messages to its worker.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from drumbeat.codec import Results, Undecodable, decode_result, make_storable
from drumbeat.codec.hints import format_hint
from drumbeat.codec.parent_values import attach_pages, is_outcome, is_results, item_type
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.dependencies import Binding, ParentResult
from drumbeat.core.job import Failure, JobState
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
MAX_AHEAD, MAX_AHEAD_BYTES = 500, 8 * 1024 * 1024
"""Jobs whose results are loaded while they wait for a slot, and how much that may be, by the size of those before."""
FIRST_PAGE = 100
"""Results of the first page, by whose size the next is chosen."""
_encode = msgspec.json.Encoder().encode


Loading = asyncio.Future[list[ParentResult]]
DecodedJob = tuple[str | None, Arguments | HandlerResult | Outcome]
"""The arguments of a job with what it gets of its parents: as JSON, for a child process, and decoded; or why it cannot run."""


class BoundJob(NamedTuple):
    """The arguments of a job with what it gets of its parents."""

    args: str
    """JSON, as `ClaimedJob.args`; the place of `Results` says how many they are, and of which argument."""
    given: dict[str, ParentResult]
    """By argument; of lists and `Results` the first of its results."""


class ParentResults:
    """Loads for all slots: what is asked for while a call to the store is under way goes together in the next. What is claimed
    together is loaded together, before it has a slot: else ten slots would wait for the store with each ten jobs."""

    name = "parent results"

    def __init__(self, core: WorkerCore, store: DependencyStore, port: StepPort) -> None:
        """`port`: where `Results` are read from."""
        self._store = store
        self._port = port
        self._backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._waiting: dict[JobId, list[Loading]] = {}
        self._ahead: dict[JobId, Loading] = {}
        """Of claimed jobs that no slot has asked for yet, oldest first; those that never start are dropped in time."""
        self._usual_bytes = 64 * 1024
        self._wakeup = asyncio.Event()
        self._is_closed = False

    def prefetch(self, jobs: Iterable[ClaimedJob]) -> None:
        """These have been claimed. Never waits."""
        bound = [job.id for job in jobs if job.binds]
        if bound:
            limit = max(1, min(MAX_AHEAD, MAX_AHEAD_BYTES // self._usual_bytes))
            self._ahead |= {id: self._ask(id) for id in bound[:limit]}
            for id in list(self._ahead)[:-limit]:
                del self._ahead[id]

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
        args = msgspec.json.decode(job.args, type=dict[str, msgspec.Raw])
        given: dict[str, ParentResult] = {}
        total = 0
        for result in results:
            for name in result.argument.split():
                if name in given:
                    continue
                given[name] = result
                if result.binding is not Binding.RESULTS:
                    raw = value_of(job.task, name, result, as_outcome=result.binding is Binding.OUTCOME)
                elif is_results(hint := spec.hints.get(name, Any)):
                    raw = _encode({"argument": name, "count": msgspec.json.decode(args[name])})
                else:
                    raw = await self._load_list(job, name, is_outcome(item_type(hint)))
                total += len(raw)
                if total > MAX_TOTAL_BYTES:
                    problem = f"the results that it gets are more than {MAX_TOTAL_BYTES >> 20} MiB together"
                    raise _lost(job.task, name, f"{problem}: keep large values elsewhere, and return where they are")
                args[name] = msgspec.Raw(raw)
        return BoundJob(_encode(args).decode(), given)

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
        return await (self._ahead.pop(job) if job in self._ahead else self._ask(job))

    def _ask(self, job: JobId) -> Loading:
        loaded: Loading = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, []).append(loaded)
        self._wakeup.set()
        return loaded

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
                largest = max((sum(map(_size, results)) for results in found.values()), default=0)
                self._usual_bytes = max(1_000, largest, self._usual_bytes // 2)


def _size(result: ParentResult) -> int:
    return len(result.result or "") + (0 if result.error is None else len(result.error.traceback))


def value_of(task: str, argument: str, result: ParentResult, *, as_outcome: bool) -> bytes:
    """The JSON of what one parent gives.

    Raises:
        ParentResultUnusable: nothing is kept of it, or it has failed.
    """
    parent = f"its parent {result.parent} (task {result.task})"
    if result.state is None:
        raise _lost(task, argument, f"nothing is kept of {parent}: its history was pruned")
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
        raise _lost(task, argument, f"{parent} ended as {result.state}, and has no result")
    if result.result_error is not None:
        raise _lost(task, argument, f"the result of {parent} was not kept: {result.result_error}")
    return b"null" if result.result is None else result.result.encode()


def _lost(task: str, argument: str, problem: str) -> ParentResultUnusable:
    return ParentResultUnusable(Failure("ParentResultLost", f"{task}: argument {argument!r}: {problem}"))


def unusable_result(failure: Failure) -> HandlerResult:
    return HandlerResult(kind=ResultKind.UNDECODABLE, error=failure)


def find_mismatch(spec: TaskSpec, bound: BoundJob) -> HandlerResult | None:
    """The arguments cannot be decoded: which result of a parent is to blame; None: none of them."""
    args = msgspec.json.decode(bound.args, type=dict[str, msgspec.Raw])
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
