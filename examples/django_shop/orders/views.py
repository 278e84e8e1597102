"""Taking orders: the order and its jobs are stored together, or not at all."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse

from .models import Order
from .tasks import ship, thank


def orders(request: HttpRequest) -> JsonResponse:
    if request.method == "POST":
        with transaction.atomic():
            order = Order.objects.create(item=request.POST["item"])
            ship.using(conn=connection).enqueue_sync(order.id)
            thank.enqueue(order.id)
            if "unpaid" in request.POST:
                raise ValueError("nothing is stored of an order that is not paid")
    return JsonResponse({"orders": list(Order.objects.order_by("id").values("item", "state", "thanked"))})
