"""The site as ASGI, with the dashboard for its staff."""

import os

from django.core.asgi import get_asgi_application

from drumbeat.contrib.django import dashboard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = dashboard("/jobs", get_asgi_application())
