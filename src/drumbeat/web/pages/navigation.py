"""The navigation: pages with their keyboard shortcuts after `g`. Routes are in `__init__.py`."""

from __future__ import annotations

from typing import NamedTuple


class NavigationItem(NamedTuple):
    name: str
    """Also of its icon."""
    title: str
    key: str

    @property
    def path(self) -> str:
        return "/" if self.name == "overview" else f"/{self.name}"


NAVIGATION = {
    "": (NavigationItem("overview", "Overview", "o"),),
    "Work": (
        NavigationItem("jobs", "Jobs", "j"),
        NavigationItem("dead", "Dead letters", "d"),
        NavigationItem("workflows", "Workflows", "w"),
        NavigationItem("queues", "Queues", "q"),
        NavigationItem("limits", "Limits", "r"),
        NavigationItem("tasks", "Tasks", "t"),
    ),
    "Time": (NavigationItem("schedules", "Schedules", "s"), NavigationItem("timeline", "Timeline", "m")),
    "Cluster": (NavigationItem("instances", "Instances", "i"), NavigationItem("locks", "Locks", "l")),
    "Record": (NavigationItem("audit", "Audit", "a"), NavigationItem("system", "System", "y")),
}
"""By the title of the group."""
