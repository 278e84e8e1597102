"""Drumbeat in a Django project: the app whose settings are `settings.DRUMBEAT`, and the dashboard for staff.

    INSTALLED_APPS = [..., "drumbeat.contrib.django"]        DRUMBEAT = {"database": "default"}

Importing this package needs neither settings nor loaded models: `app` reads the settings when it is first used. `worker.py` is
what processes import: it loads the whole project.
"""

from drumbeat.contrib.django.dashboard import dashboard
from drumbeat.contrib.django.project import app

__all__ = ["app", "dashboard"]
