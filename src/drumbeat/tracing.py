"""Spans of jobs, from enqueue to run, if the program traces with OpenTelemetry; and the trace context that a job carries.

A program that has set a provider has imported `opentelemetry.trace`, so nothing is imported here that is not there already:
without OpenTelemetry this costs one lookup in `sys.modules`. Names and attributes follow OpenTelemetry's messaging
conventions. A job carries a W3C traceparent as text; one that is malformed is ignored.
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
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import Failure, NewJob, OutcomeKind

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider
    from opentelemetry.util.types import AttributeValue

log = logging.getLogger(__name__)

SCOPE = "drumbeat"
API = "opentelemetry.trace"
LOST = "lost"
"""The outcome of an attempt whose job is no longer ours."""
_FAILED = frozenset({OutcomeKind.RETRY.value, OutcomeKind.DEAD.value, OutcomeKind.CRASHED.value})
_MAX_ERRORS = 10
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_span_factory: SpanFactory | None = None
_HAS_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER" in environ


class SpanResult(NamedTuple):
    """How one job of an attempt ended."""

    outcome: str
    error: Failure | None = None


def to_span_result(outcome: Outcome | None) -> SpanResult:
    return SpanResult(LOST) if outcome is None else SpanResult(outcome.kind.value, outcome.error)


def get_span_factory() -> SpanFactory | None:
    """None, unless the program has set a provider."""
    trace = modules.get(API)
    # get_tracer_provider() would read the environment each time, even if no provider is set.
    if trace is None or (getattr(trace, "_TRACER_PROVIDER", trace) is None and not _HAS_PROVIDER_VARIABLE):
        return None
    return _from_provider(trace)


def _from_provider(trace: Any) -> SpanFactory | None:
    global _span_factory
    provider = trace.get_tracer_provider()
    if _span_factory is None or _span_factory.provider is not provider:
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None  # the API is imported, but no provider is set
        _span_factory = SpanFactory(provider)
    return _span_factory


class SpanFactory:
    """Makes spans with the program's provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    @contextmanager
    def start_send(self, jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
        """A `send` span around the block that stores these jobs; yields them with its context. Records what the block
        raises."""
        from opentelemetry.trace import SpanKind

        attributes = _attributes("send", jobs)
        name = _name("send", attributes)
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            trace = format_traceparent(span.get_span_context())
            # A job that has a trace keeps it: from an outbox, for instance.
            yield [job if job.trace is not None else msgspec.structs.replace(job, trace=trace) for job in jobs]

    def start_process(self, jobs: Sequence[ClaimedJob], *, is_batch: bool) -> AttemptSpan:
        """A `process` span for a run of these jobs: a child of the span that enqueued the job; for a batch, with links."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        attributes = _attributes("process", jobs, is_batch=is_batch)
        parents = [context for job in jobs if (context := parse_traceparent(job.trace)) is not None]
        parent, links = Context(), []
        if is_batch:
            links = [trace.Link(context) for context in parents]
        else:
            attributes["drumbeat.attempt"] = jobs[0].attempt
            for context in parents:
                parent = trace.set_span_in_context(trace.NonRecordingSpan(context), parent)
        return AttemptSpan(
            self._tracer.start_span(
                _name("process", attributes),
                context=parent,
                kind=trace.SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
            )
        )


class AttemptSpan:
    """The span of one run; current where it was made until `detach`."""

    __slots__ = ("_ended_ns", "_span", "_token")

    def __init__(self, span: Span) -> None:
        from opentelemetry import context, trace

        self._span = span
        self._ended_ns: int | None = None
        self._token: Token[Context] = context.attach(trace.set_span_in_context(span))

    @property
    def trace(self) -> str | None:
        """For the child process that the handler runs in."""
        return format_traceparent(self._span.get_span_context())

    def detach(self) -> None:
        """The handler has ended; in the task that made this."""
        from opentelemetry import context

        context.detach(self._token)
        # The outcome may be known later: after `complete()`, only from the store.
        self._ended_ns = SYSTEM.now_us() * 1_000

    def finish(self, results: Sequence[SpanResult]) -> None:
        """End the span with the results of its jobs, in the order of the batch."""
        from opentelemetry.trace import Status, StatusCode

        span = self._span
        span.set_attribute("drumbeat.outcome", ",".join(sorted({each.outcome for each in results})))
        errors = [each.error for each in results if each.error is not None]
        for error in errors[:_MAX_ERRORS]:
            span.add_event("exception", _exception(error))
        if any(each.outcome in _FAILED for each in results):
            if errors:
                span.set_attribute("error.type", errors[0].type)
            span.set_status(Status(StatusCode.ERROR, errors[0].message if errors else None))
        span.end(self._ended_ns)


def start_attempt_span(jobs: Sequence[ClaimedJob], *, is_batch: bool) -> AttemptSpan | None:
    """The span of a run, if the program traces. Jobs run even if its tracing fails."""
    if (known := get_span_factory()) is None:
        return None
    try:
        return known.start_process(jobs, is_batch=is_batch)
    except Exception:  # of the program's own samplers and processors
        log.exception("a job runs without its span: tracing failed", extra={"job": jobs[0].id, "task": jobs[0].task})
        return None


def finish_attempt_span(attempt: AttemptSpan, results: Sequence[SpanResult]) -> None:
    try:
        attempt.finish(results)
    except Exception:  # likewise
        log.exception("a span could not be ended: tracing failed")


def attach_traceparent(trace: str | None) -> None:
    """Make this the current span, in a context that is discarded after the run: that of a child process."""
    if API in modules and (known := parse_traceparent(trace)) is not None:
        from opentelemetry import context
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        context.attach(set_span_in_context(NonRecordingSpan(known)))


def current_trace_ids() -> dict[str, str]:
    """trace_id and span_id of the current span; nothing where there is none."""
    if API not in modules:
        return {}
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def format_traceparent(context: SpanContext) -> str | None:
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


def parse_traceparent(trace: str | None) -> SpanContext | None:
    """The span context of another process; None if it is malformed."""
    if trace is None or (found := _TRACEPARENT.fullmatch(trace)) is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def _attributes(
    operation: str, jobs: Sequence[NewJob] | Sequence[ClaimedJob], *, is_batch: bool = False
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "drumbeat",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    # Only what all jobs of one call share.
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
