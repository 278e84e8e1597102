"""The administration API of an app: `app.jobs`, `app.dead`, `app.queues`, `app.tasks`, `app.schedules`, `app.instances`,
`app.locks`, `app.stats`, `app.audit`, `app.system`.

The same names are the commands of the command line and the paths of the HTTP API. Each class is a thin layer over the store: it
checks its arguments, says what is allowed where one is wrong, and queries.
"""

from drumbeat.admin.admin import Admin
from drumbeat.admin.audit import ActInProgress, ActOptions, Audit, SyncAudit, new_act
from drumbeat.admin.dead import Dead
from drumbeat.admin.explain.reasons import Explanation, Reason, ReasonKind
from drumbeat.admin.history import RunQuery, history
from drumbeat.admin.instances import Instances
from drumbeat.admin.jobs import Jobs
from drumbeat.admin.locks import Locks
from drumbeat.admin.queues import Queues
from drumbeat.admin.schedules import BackfillResult, Schedules
from drumbeat.admin.stats import Stats
from drumbeat.admin.sync_api import SyncAdmin
from drumbeat.admin.system import System
from drumbeat.admin.tasks import TaskInfo, Tasks
from drumbeat.admin.views import FireInfo, Run, ScheduleInfo

__all__ = [
    "ActInProgress",
    "ActOptions",
    "Admin",
    "Audit",
    "BackfillResult",
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
    "RunQuery",
    "ScheduleInfo",
    "Schedules",
    "Stats",
    "SyncAdmin",
    "SyncAudit",
    "System",
    "TaskInfo",
    "Tasks",
    "history",
    "new_act",
]
