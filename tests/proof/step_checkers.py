"""T1 to T5: what is on record of a job is not done again, sleeps are slept, and each signal is read once."""

from collections import defaultdict
from collections.abc import Iterator

from tests.proof.history import History, StepEvent
from tests.proof.registry import promise

Name = tuple[str, str]
"""A job, and a name in it."""
LIVE = {"pending", "running"}
ROUNDING = 0.000_002


def by_name(history: History, *kinds: str) -> dict[Name, list[StepEvent]]:
    found: dict[Name, list[StepEvent]] = defaultdict(list)
    for event in history.steps:
        if event.kind in kinds:
            found[event.job, event.name].append(event)
    return found


@promise
def recorded_steps_are_not_repeated(history: History) -> Iterator[str]:
    """T1: once a run has gone on behind a step, no later run calls its function."""
    calls = by_name(history, "called")
    for name, passed in by_name(history, "stepped").items():
        first = min(passed, key=lambda event: event.at)
        for call in calls[name]:
            if call.token > first.token and call.at > first.at:
                yield f"T1: step {name[1]} of {name[0]} was on record at {first.at:.3f}, and called at {call.at:.3f}"


@promise
def steps_return_one_result(history: History) -> Iterator[str]:
    """T2: a step returns the same in every run, and that is what one of its calls has returned."""
    calls = by_name(history, "called")
    for name, passed in by_name(history, "stepped").items():
        values = {event.value for event in passed}
        if len(values) > 1:
            yield f"T2: step {name[1]} of {name[0]} returned {sorted(values)}"
        if unknown := values - {call.value for call in calls[name]}:
            yield f"T2: step {name[1]} of {name[0]} returned {sorted(unknown)}, which no call of it did"


@promise
def sleeps_are_slept(history: History) -> Iterator[str]:
    """T3: no run goes on behind a sleep, or behind a wait that times out, before its time."""
    if history.epoch is None:
        return  # the clock was stepped
    asked = by_name(history, "sleeps", "waits")
    for name, passed in by_name(history, "slept", "timed out").items():
        first = min(asked[name], key=lambda event: event.at)
        for event in passed:
            if event.at < first.at + (first.seconds or 0.0) - ROUNDING:
                yield f"T3: {name[0]} asked for {name[1]} of {first.seconds} s at {first.at:.3f}, and went on at {event.at:.3f}"


@promise
def signals_are_read_once(history: History) -> Iterator[str]:
    """T4: a signal is read by one wait of the job that it was sent to, and a wait ends once: it gets the same in every run, and
    takes no other."""
    taken = {(each.job, each.wait): set[str]() for each in history.signals_read}
    for each in history.signals_read:
        taken[each.job, each.wait].add(each.value)
    for name, values in taken.items():
        if len(values) > 1:
            yield f"T4: wait {name[1]} of {name[0]} has taken {sorted(values)}"
    sent = {(call.job, call.value) for call in history.signals}
    readers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, passed in by_name(history, "got", "timed out").items():
        ends = {event.value for event in passed}
        if len(ends) > 1:
            yield f"T4: wait {name[1]} of {name[0]} has ended as {sorted(ends)}"
        for event in passed:
            if event.kind == "got":
                readers[event.job, event.value].add(event.name)
    for signal, waits in readers.items():
        if len(waits) > 1:
            yield f"T4: signal {signal[1]} of {signal[0]} was read by {sorted(waits)}"
        if signal not in sent:
            yield f"T4: signal {signal[1]} of {signal[0]} was read, and nobody has sent it"


@promise
def no_signal_is_lost(history: History) -> Iterator[str]:
    """T5: no job waits, and no wait times out, while a signal is unread that was stored before."""
    read = {(event.job, event.value) for event in history.steps if event.kind == "got"}
    unread: dict[str, list[float]] = defaultdict(list)
    for call in history.signals:
        if call.answered_at is not None and (call.job, call.value) not in read:
            unread[call.job].append(call.answered_at)
    if not unread:
        return
    asked = by_name(history, "waits")
    ended = by_name(history, "got", "timed out")
    live = {job.id for job in history.jobs if job.state in LIVE}
    for name, waits in asked.items():
        if name[0] in live and name not in ended and unread[name[0]]:
            yield f"T5: {name[0]} is in wait {name[1]}, and has a signal that was stored at {min(unread[name[0]]):.3f}"
        first = min(waits, key=lambda event: event.at)
        for event in ended.get(name, ()):
            if event.kind == "timed out" and history.epoch is not None:
                over = first.at + (first.seconds or 0.0)
                if early := [at for at in unread[name[0]] if at < over]:
                    yield f"T5: wait {name[1]} of {name[0]} timed out, and a signal was stored at {early[0]:.3f}"
