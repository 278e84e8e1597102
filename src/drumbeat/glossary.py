"""The words of Drumbeat and their meanings: `drumbeat glossary` prints them, the dashboard explains its headings with them.

docs/glossary.md is made from this table (a test compares them). One word has one meaning, everywhere.
"""

from typing import NamedTuple


class Term(NamedTuple):
    name: str
    meaning: str


TERMS = tuple(
    Term(name, meaning)
    for name, meaning in (
        ("app", "A `Drumbeat` object: settings, registered tasks and the store they use."),
        ("task", "A Python function registered with `@app.task`."),
        ("job", "One queued call of a task."),
        ("attempt", "One execution of a job. Attempts are counted from 1."),
        (
            "parent",
            "Of a dependency: a job that must end before its child may start. Of a lineage: the job whose handler enqueued it.",
        ),
        ("dependency", "That a job, the child, waits until another one, its parent, has ended."),
        (
            "workflow",
            "Jobs that were stored together under a name, with their dependencies; shown, cancelled and replayed as one.",
        ),
        ("step", "A named part of a handler. Once its result is on record, later runs of the job do not repeat it."),
        ("suspended", "A pending job whose run ended with a sleep or a wait for a signal; a later run continues it."),
        ("signal", "A named message to one job, with a payload. One wait of that job reads it, once."),
        ("lineage", "Which job enqueued which: the ancestors of a job, and the tree of jobs below it."),
        (
            "outcome",
            "How an attempt ended: succeeded, retry, dead, cancelled, snoozed, released, suspended, blocked, expired, crashed.",
        ),
        ("queue", "A named list of jobs that workers claim from. The default one is called `default`."),
        ("priority", "0 to 9; within a queue, due jobs with a smaller number are claimed first."),
        ("limit", "How many jobs may run at once, or start in a time: of a queue, a task, or each group."),
        ("group", "A name that jobs share, such as a tenant's: limits, an order and turns may hold for each group."),
        ("line", "The jobs that stand under one declaration of limits: of a task that has its own, or of a queue."),
        ("lane", "The jobs of one group in a line. Exactly the same limits hold for all of them."),
        ("key", "A text by which jobs of a task are found, cancelled or deduplicated."),
        ("unique key", "A key of which at most one job may be live (or pending) at a time."),
        ("pending", "State of a job that has not been claimed: scheduled, ready, retrying or waiting."),
        ("scheduled", "A pending job whose run time has not come."),
        ("ready", "A pending job that a worker may claim now, or once limits leave room for it."),
        ("retrying", "A pending job that failed or crashed before and whose next attempt is not due."),
        (
            "waiting",
            "A pending job that is blocked on something other than time, such as its parents, or a task that no worker knows.",
        ),
        ("running", "State of a job that an instance has claimed."),
        ("succeeded", "Final state of a job whose handler returned."),
        (
            "cancelled",
            "Final state of a job that a user or program cancelled, or that was cancelled because a parent failed.",
        ),
        ("expired", "Final state of a job that had not started by the time that `expires=` sets."),
        ("dead letter", "A job that failed for good; it is kept until it is replayed or discarded."),
        ("replay", "Make a dead letter pending again, with its attempts counted from 1 again."),
        ("discard", "Resolve a dead letter without running it again; it becomes history."),
        ("history", "Jobs that have ended, kept for a time that settings decide."),
        ("worker", "A process that runs jobs."),
        ("instance", "One running process as the store knows it: an id, a heartbeat and its roles."),
        ("heartbeat", "The regular write by which an instance shows that it is alive."),
        (
            "lease",
            "A time-limited right: of an instance to its jobs, of a holder to its lock, of a leader to its term.",
        ),
        ("token", "A number that grows with each claim or grant; a write with an older token is refused."),
        ("claim", "Take pending jobs for one instance, in one atomic step."),
        ("controller", "The part of an instance that fires schedules, declares instances dead and prunes history."),
        ("leader", "The instance whose controller does the cluster's work at present."),
        ("term", "One spell of leadership."),
        ("schedule", "A rule in time, such as a cron expression, that creates jobs of a task."),
        ("fire", "One due time of a schedule, and what became of it. It is recorded once."),
        ("catch up", "What happens to fires that were missed while nothing ran: all, the latest, or none."),
        ("overlap", "What happens to a fire while the job of an earlier one is still live."),
        ("backfill", "Fire the times of a schedule that lie in a past interval."),
        ("lock", "A named permit for one or more holders over the whole cluster, granted in the order of requests."),
        ("ticket", "One request for a lock, from asking to releasing it."),
        ("rate window", "The interval in which a lock grants at most its limit."),
        ("room", "A function that messages call in every live worker, at most once and without retries."),
        ("sink", "A broker or webhook to which jobs are forwarded instead of being run."),
        ("store", "Where the jobs are kept: a SQLite file, a PostgreSQL database or a Redis server."),
        ("outbox", "Jobs left in a SQL database of the program, from where a relay carries them to the store."),
        ("audit", "The record of what people did, when, to how many jobs, and for what reason."),
    )
)


def find(word: str) -> list[Term]:
    """Terms with this name, else terms whose name or meaning contains the word."""
    wanted = word.casefold().strip()
    exact = [term for term in TERMS if term.name == wanted]
    return exact or [term for term in TERMS if wanted in term.name or wanted in term.meaning.casefold()]


def meaning_of(name: str) -> str:
    """The meaning of a term that must exist: a template that names another one fails."""
    return next(term.meaning for term in TERMS if term.name == name)


def to_markdown() -> str:
    """The content of docs/glossary.md."""
    rows = "\n".join(f"| {term.name} | {term.meaning} |" for term in TERMS)
    return f"""# Glossary

The same words are used in Python, on the command line, in the API, on the dashboard, in the database and in logs.
`drumbeat glossary WORD` prints an entry. This page is made from `src/drumbeat/glossary.py`.

| word | meaning |
|---|---|
{rows}
"""
