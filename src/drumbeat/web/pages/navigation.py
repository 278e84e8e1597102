"""The pages as the navigation lists them, with the key that follows `g`. Their routes are in `__init__.py`."""

from __future__ import annotations

import msgspec


class Item(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    title: str
    key: str

    @property
    def icon(self) -> str:
        return self.name


class Group(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    items: tuple[Item, ...]


NAVIGATION = (
    Group(title="", items=(Item(name="overview", path="/", title="Overview", key="o"),)),
    Group(
        title="Work",
        items=(
            Item(name="jobs", path="/jobs", title="Jobs", key="j"),
            Item(name="dead", path="/dead", title="Dead letters", key="d"),
            Item(name="queues", path="/queues", title="Queues", key="q"),
            Item(name="tasks", path="/tasks", title="Tasks", key="t"),
        ),
    ),
    Group(
        title="Time",
        items=(
            Item(name="schedules", path="/schedules", title="Schedules", key="s"),
            Item(name="timeline", path="/timeline", title="Timeline", key="m"),
        ),
    ),
    Group(
        title="Cluster",
        items=(
            Item(name="instances", path="/instances", title="Instances", key="i"),
            Item(name="locks", path="/locks", title="Locks", key="l"),
        ),
    ),
    Group(
        title="Record",
        items=(
            Item(name="audit", path="/audit", title="Audit", key="a"),
            Item(name="system", path="/system", title="System", key="y"),
        ),
    ),
)
