"""The project's app for processes that run its jobs: importing this module loads the whole project.

drumbeat run drumbeat.contrib.django.worker:app          what `manage.py drumbeat run` does
"""

from __future__ import annotations

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from drumbeat.app import Drumbeat
from drumbeat.contrib.django.project import load_project_app
from drumbeat.errors import ConfigError

REF = f"{__name__}:app"


def load_project() -> Drumbeat:
    """
    Raises:
        ConfigError: there are no settings, or they are wrong.
    """
    try:
        django.setup()
        apps.get_app_config("drumbeat").check_loaded()
    except ImproperlyConfigured as error:
        text = str(error)
        if "settings are not configured" in text:
            text = "there are no Django settings: set DJANGO_SETTINGS_MODULE, or use the project's manage.py"
        raise ConfigError(text) from error
    except LookupError as error:
        raise ConfigError('add "drumbeat.contrib.django" to INSTALLED_APPS') from error
    return load_project_app()


app = load_project()
