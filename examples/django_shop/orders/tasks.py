"""Found by Drumbeat because it is the tasks.py of an installed app."""

import django

from drumbeat.contrib.django import app

from .models import Order

if django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task


@app.task
def ship(order: int) -> str:
    Order.objects.filter(id=order).update(state="shipped")
    return Order.objects.get(id=order).item


@app.task
async def count(state: str) -> int:
    return await Order.objects.filter(state=state).acount()


@task
def thank(order: int) -> None:
    """A task of Django's own framework, run by the same workers."""
    Order.objects.filter(id=order).update(thanked=True)
