"""Which job enqueued which: the ancestors of a job, and a bounded part of the tree below it.

A job that is enqueued inside a handler keeps the id of the running job as its `parent`; an on_dead or on_success job that of
the one it follows.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.job import Job
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store

MAX_ANCESTORS = 20
MAX_DEPTH = 3
"""Levels below the job that are read."""
MAX_GRANDCHILDREN = 10
"""Children of each descendant that are read; more are on its own page."""


class LineageItem(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a tree."""

    job: Annotated[Job, doc("Without its arguments, progress and result.")]
    depth: Annotated[int, doc("Levels below the job that was asked for: 1 is its child.")]
    has_more: Annotated[bool, doc("It has, or may have, children that are not listed here.")]


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job descends from, and what it has enqueued."""

    ancestors: Annotated[list[Job], doc("The first of them first; the last is the parent. At most 20.")]
    missing: Annotated[
        JobId | None, doc("The parent of the first ancestor (or of the job), if it is pruned or not listed here.")
    ]
    descendants: Annotated[
        list[LineageItem], doc("Each followed by its own children, newest first, three levels deep, at most `limit`.")
    ]
    next: Annotated[JobId | None, doc("`before` of the next page of its children; None: these are all.")]


async def read_lineage(store: Store, job: Job, *, before: JobId | None, limit: int) -> Lineage:
    """Bounded: 20 reads upwards, and one for each job of the tree below that may have children."""
    ancestors = await _read_ancestors(store, job)
    first = await _read_children(store, job.id, limit, before)
    families: dict[JobId, JobPage] = {}
    left, level = limit - len(first.items), [each.id for each in first.items]
    for _ in range(1, MAX_DEPTH):
        following: list[JobId] = []
        for parent in level:
            if left <= 0:
                break
            families[parent] = page = await _read_children(store, parent, min(left, MAX_GRANDCHILDREN), None)
            left -= len(page.items)
            following += [each.id for each in page.items]
        level = following
    return Lineage(
        ancestors=ancestors,
        missing=(ancestors[0] if ancestors else job).parent,
        descendants=_flatten(first.items, families, 1),
        next=first.next,
    )


async def _read_ancestors(store: Store, job: Job) -> list[Job]:
    found: list[Job] = []
    known = {job.id}
    while job.parent is not None and job.parent not in known and len(found) < MAX_ANCESTORS:
        parent = (await store.inspect.get_jobs([job.parent], preview=0)).get(job.parent)
        if parent is None:
            break
        known.add(parent.id)
        found.append(parent)
        job = parent
    return found[::-1]


async def _read_children(store: Store, parent: JobId, limit: int, before: JobId | None) -> JobPage:
    return await store.inspect.find_page(JobFilter(parent=parent, before=before, limit=limit, preview=0))


def _flatten(jobs: list[Job], families: dict[JobId, JobPage], depth: int) -> list[LineageItem]:
    """The tree in the order in which it is read."""
    found: list[LineageItem] = []
    for job in jobs:
        family = families.get(job.id)
        found.append(LineageItem(job=job, depth=depth, has_more=family is None or family.next is not None))
        if family is not None and depth < MAX_DEPTH:  # a circle, which only a damaged store has, ends here
            found += _flatten(family.items, families, depth + 1)
    return found
