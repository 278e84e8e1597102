"""Where jobs can be sent instead of run: `app.forward("order.reminder", to=KafkaSink(topic=..., servers=...))`.

Drivers are imported when a worker starts, not here. A sink of your own is a class with what `Sink` and `Outlet` say.
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
