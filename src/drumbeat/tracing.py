"""Spans of jobs, from enqueue to run, where the program traces with OpenTelemetry; and what of a span travels with a job.

A program that has set a provider has imported `opentelemetry.trace`, so nothing is imported here that is not there already:
without OpenTelemetry all this costs one look into `sys.modules`. Names and attributes are those of OpenTelemetry's messaging
conventions. What travels is a W3C traceparent, which is text: the store knows nothing of spans, and what it gives back is
believed only if it looks like one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import environ
from sys import modules
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from drumbeat.clock import SYSTEM
from drumbeat.model.job import Claimed, Failure, NewJob, Outcome, OutcomeKind

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider
    from opentelemetry.util.types import AttributeValue

log = logging.getLogger(__name__)

SCOPE = "drumbeat"
API = "opentelemetry.trace"
LOST = "lost"
"""The outcome of an attempt whose job belongs to somebody else by now."""
_FAILED = frozenset({OutcomeKind.RETRY.value, OutcomeKind.DEAD.value, OutcomeKind.CRASHED.value})
_MOST_ERRORS = 10
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_spans: Spans | None = None
_NAMED_OUTSIDE = "OTEL_PYTHON_TRACER_PROVIDER" in environ


class Ended(NamedTuple):
    """How one job of an attempt ended."""

    outcome: str
    error: Failure | None = None


def ended(outcome: Outcome | None) -> Ended:
    return Ended(LOST) if outcome is None else Ended(outcome.kind.value, outcome.error)


def spans() -> Spans | None:
    """None, unless the program has set a provider."""
    trace = modules.get(API)
    # Its own function would look into the environment each time, before it tells that there is none.
    if trace is None or (getattr(trace, "_TRACER_PROVIDER", trace) is None and not _NAMED_OUTSIDE):
        return None
    return _of_the_program(trace)


def _of_the_program(trace: Any) -> Spans | None:
    global _spans
    provider = trace.get_tracer_provider()
    if _spans is None or _spans.provider is not provider:
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None  # the interface is there, and nobody has set a provider behind it
        _spans = Spans(provider)
    return _spans


class Spans:
    """The spans that this process makes, with the program's provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    @contextmanager
    def sending(self, jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
        """A `send` span around the block that stores these jobs; gives them with its context. Of what is raised it is told."""
        from opentelemetry.trace import SpanKind

        attributes = _attributes("send", jobs)
        name = _name("send", attributes)
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            trace = traceparent(span.get_span_context())
            # One that has a trace is only carried on: from an outbox, for instance.
            yield [job if job.trace is not None else msgspec.structs.replace(job, trace=trace) for job in jobs]

    def process(self, jobs: Sequence[Claimed], *, is_batch: bool) -> Attempt:
        """A `process` span for a run of these jobs: a child of the span that enqueued the job; of a batch, with links."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        attributes = _attributes("process", jobs, is_batch=is_batch)
        parents = [context for job in jobs if (context := span_context(job.trace)) is not None]
        parent, links = Context(), []
        if is_batch:
            links = [trace.Link(context) for context in parents]
        else:
            attributes["drumbeat.attempt"] = jobs[0].attempt
            for context in parents:
                parent = trace.set_span_in_context(trace.NonRecordingSpan(context), parent)
        return Attempt(
            self._tracer.start_span(
                _name("process", attributes),
                context=parent,
                kind=trace.SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
            )
        )


class Attempt:
    """The span of one run, current where it was made until `leave`."""

    __slots__ = ("_left_ns", "_span", "_token")

    def __init__(self, span: Span) -> None:
        from opentelemetry import context, trace

        self._span = span
        self._left_ns: int | None = None
        self._token: Token[Context] = context.attach(trace.set_span_in_context(span))

    @property
    def trace(self) -> str | None:
        """For the child process that the handler runs in."""
        return traceparent(self._span.get_span_context())

    def leave(self) -> None:
        """The handler has ended; in the task that made this."""
        from opentelemetry import context

        context.detach(self._token)
        # How it ended may be known later: of one that has completed its job, only by a look into the store.
        self._left_ns = SYSTEM.now_us() * 1_000

    def end(self, endings: Sequence[Ended]) -> None:
        """How its jobs ended: in the order of the batch, if it is one."""
        from opentelemetry.trace import Status, StatusCode

        span = self._span
        span.set_attribute("drumbeat.outcome", ",".join(sorted({each.outcome for each in endings})))
        errors = [each.error for each in endings if each.error is not None]
        for error in errors[:_MOST_ERRORS]:
            span.add_event("exception", _exception(error))
        if any(each.outcome in _FAILED for each in endings):
            if errors:
                span.set_attribute("error.type", errors[0].type)
            span.set_status(Status(StatusCode.ERROR, errors[0].message if errors else None))
        span.end(self._left_ns)


def begin(jobs: Sequence[Claimed], *, is_batch: bool) -> Attempt | None:
    """The span of a run, where somebody traces. Whatever is wrong with the tracing of the program, its jobs run."""
    if (known := spans()) is None:
        return None
    try:
        return known.process(jobs, is_batch=is_batch)
    except Exception:  # of the program's own samplers and processors
        log.exception("a job runs without its span: tracing failed", extra={"job": jobs[0].id, "task": jobs[0].task})
        return None


def end(attempt: Attempt, endings: Sequence[Ended]) -> None:
    try:
        attempt.end(endings)
    except Exception:  # likewise
        log.exception("a span could not be ended: tracing failed")


def enter(trace: str | None) -> None:
    """Make this the current span's context, in a context that is thrown away with its run: that of a child process."""
    if API in modules and (known := span_context(trace)) is not None:
        from opentelemetry import context
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        context.attach(set_span_in_context(NonRecordingSpan(known)))


def ids() -> dict[str, str]:
    """trace_id and span_id of the current span; nothing where there is none."""
    if API not in modules:
        return {}
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def traceparent(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


def span_context(trace: str | None) -> SpanContext | None:
    """The context of a span of another process; None if this is none."""
    if trace is None or (found := _TRACEPARENT.fullmatch(trace)) is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def _attributes(
    operation: str, jobs: Sequence[NewJob] | Sequence[Claimed], *, is_batch: bool = False
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "drumbeat",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    # What jobs of one call do not share is left out.
    for name, values in (
        ("messaging.destination.name", {job.queue for job in jobs}),
        ("drumbeat.task", {job.task for job in jobs}),
    ):
        if len(values) == 1:
            attributes[name] = values.pop()
    if is_batch or len(jobs) != 1:
        attributes["messaging.batch.message_count"] = len(jobs)
    else:
        attributes["messaging.message.id"] = jobs[0].id
    return attributes


def _name(operation: str, attributes: Mapping[str, Any]) -> str:
    queue = attributes.get("messaging.destination.name")
    return operation if queue is None else f"{operation} {queue}"


def _exception(error: Failure) -> dict[str, AttributeValue]:
    return {
        "exception.type": error.type,
        "exception.message": error.message,
        "exception.stacktrace": error.traceback,
    }
