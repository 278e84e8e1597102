"""A Django project of the tests: its settings, and an app with tasks of all kinds."""

import os

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.apps.django_site.settings"}


def set_up_django() -> None:
    """Django in this process, with these settings, which it has once. Processes that tests start have their own."""
    import django
    from django.conf import settings

    if not settings.configured:
        os.environ |= SETTINGS
        django.setup()
        del os.environ["DJANGO_SETTINGS_MODULE"]
