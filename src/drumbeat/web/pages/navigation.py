"""The navigation: pages with their keyboard shortcuts after `g`. Routes are in `__init__.py`."""

from __future__ import annotations

import msgspec


class NavigationItem(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    title: str
    key: str

    @property
    def icon(self) -> str:
        return self.name


class NavigationGroup(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    items: tuple[NavigationItem, ...]


NAVIGATION = (
    NavigationGroup(title="", items=(NavigationItem(name="overview", path="/", title="Overview", key="o"),)),
    NavigationGroup(
        title="Work",
        items=(
            NavigationItem(name="jobs", path="/jobs", title="Jobs", key="j"),
            NavigationItem(name="dead", path="/dead", title="Dead letters", key="d"),
            NavigationItem(name="queues", path="/queues", title="Queues", key="q"),
            NavigationItem(name="tasks", path="/tasks", title="Tasks", key="t"),
        ),
    ),
    NavigationGroup(
        title="Time",
        items=(
            NavigationItem(name="schedules", path="/schedules", title="Schedules", key="s"),
            NavigationItem(name="timeline", path="/timeline", title="Timeline", key="m"),
        ),
    ),
    NavigationGroup(
        title="Cluster",
        items=(
            NavigationItem(name="instances", path="/instances", title="Instances", key="i"),
            NavigationItem(name="locks", path="/locks", title="Locks", key="l"),
        ),
    ),
    NavigationGroup(
        title="Record",
        items=(
            NavigationItem(name="audit", path="/audit", title="Audit", key="a"),
            NavigationItem(name="system", path="/system", title="System", key="y"),
        ),
    ),
)
