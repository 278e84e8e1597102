"""A Django site with Drumbeat. Django's part of it is as `django-admin startproject` makes it.

    python manage.py migrate                       makes the tables of the site, and those of its jobs
    python manage.py createsuperuser
    python manage.py drumbeat run --reload         a worker; in another terminal:
    uvicorn shop.asgi:application                  the site; the dashboard is at http://127.0.0.1:8000/jobs/

curl -d "item=tea" http://127.0.0.1:8000/orders/ takes an order. With PGDATABASE, PGUSER ... everything is in PostgreSQL.
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
