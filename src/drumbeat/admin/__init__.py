"""The administration API of an app: `app.jobs`, `app.dead`, `app.workflows`, `app.queues`, `app.tasks`, `app.schedules`,
`app.instances`, `app.limits`, `app.locks`, `app.stats`, `app.audit`, `app.system`.

The same names are the commands of the command line and the paths of the HTTP API. Each class is a thin layer over the store: it
checks its arguments, says what is allowed where one is wrong, and queries.
"""

from drumbeat.admin.admin import Admin
from drumbeat.admin.audit import Audit, new_act
from drumbeat.admin.explain.reason import Explanation, Reason, ReasonKind
from drumbeat.admin.history import RunQuery
from drumbeat.admin.schedules import BackfillResult
from drumbeat.admin.sync_api import SyncAdmin
from drumbeat.admin.tasks import TaskInfo
from drumbeat.admin.views import FireInfo, Run, ScheduleInfo

__all__ = [
    "Admin",
    "Audit",
    "BackfillResult",
    "Explanation",
    "FireInfo",
    "Reason",
    "ReasonKind",
    "Run",
    "RunQuery",
    "ScheduleInfo",
    "SyncAdmin",
    "TaskInfo",
    "new_act",
]
