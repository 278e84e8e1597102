"""Django in this process, with the settings of the tests' own project."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.apps.django_site.settings")
django.setup()
