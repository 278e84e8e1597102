"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="taken")
    thanked = models.BooleanField(default=False)
