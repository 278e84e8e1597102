"""Django in this process: test modules import models and tasks."""

from tests.apps.django_site import set_up_django

set_up_django()
