"""The nouns of the public face, `app.jobs`, `app.dead`, `app.queues`, `app.tasks`, `app.schedules`, `app.instances`,
`app.locks`, and their verbs.

The same words are the commands of the command line and the paths of the API. Each noun is a thin layer over the store: it
checks what it is given, says what is allowed where that is wrong, and asks.
"""

from drumbeat.nouns.audit import Acting, ActOptions, Audit, SyncAudit, new_act
from drumbeat.nouns.blocking import SyncNouns
from drumbeat.nouns.dead import Dead
from drumbeat.nouns.explaining import Explanation, Reason, ReasonKind
from drumbeat.nouns.history import WantedRuns, history
from drumbeat.nouns.instances import Instances
from drumbeat.nouns.jobs import Jobs
from drumbeat.nouns.locks import Locks
from drumbeat.nouns.moments import FireInfo, Run, ScheduleInfo
from drumbeat.nouns.queues import Queues
from drumbeat.nouns.schedules import Backfilled, Schedules
from drumbeat.nouns.stats import Stats
from drumbeat.nouns.system import System
from drumbeat.nouns.tasks import TaskInfo, Tasks

__all__ = [
    "ActOptions",
    "Acting",
    "Audit",
    "Backfilled",
    "Dead",
    "Explanation",
    "FireInfo",
    "Instances",
    "Jobs",
    "Locks",
    "Queues",
    "Reason",
    "ReasonKind",
    "Run",
    "ScheduleInfo",
    "Schedules",
    "Stats",
    "SyncAudit",
    "SyncNouns",
    "System",
    "TaskInfo",
    "Tasks",
    "WantedRuns",
    "history",
    "new_act",
]
