"""Sinks for jobs that are sent instead of run: `app.forward("order.reminder", to=KafkaSink(topic=..., servers=...))`.

Drivers are imported when a worker starts. A sink of your own is a class that implements `Sink` and `Outlet`.
"""

from drumbeat.clock import Clock
from drumbeat.sinks.jetstream import NatsSink
from drumbeat.sinks.kafka import KafkaSink
from drumbeat.sinks.redis_stream import RedisStreamSink
from drumbeat.sinks.sink import DeliveryFailed, Message, Outlet, Sink, SinkUnavailable
from drumbeat.sinks.webhook import WebhookSink
from drumbeat.sinks.webhook_signature import verify_webhook

__all__ = [
    "Clock",
    "DeliveryFailed",
    "KafkaSink",
    "Message",
    "NatsSink",
    "Outlet",
    "RedisStreamSink",
    "Sink",
    "SinkUnavailable",
    "WebhookSink",
    "verify_webhook",
]
