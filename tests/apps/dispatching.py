"""A program that sends its jobs to the brokers that its environment names."""

import os

from drumbeat.app import Drumbeat
from drumbeat.sinks import KafkaSink, RedisStreamSink

REDIS, KAFKA, TOPIC = "DRUMBEAT_TEST_REDIS", "DRUMBEAT_TEST_KAFKA", "reminders"

# Whoever is killed so often is not to blame for it.
app = Drumbeat(crash_limit=1000)

to_stream = app.forward(
    "to_stream", to=RedisStreamSink(stream=TOPIC, url=os.environ.get(REDIS, "redis://127.0.0.1:1")), batch=100
)
to_topic = app.forward("to_topic", to=KafkaSink(topic=TOPIC, servers=os.environ.get(KAFKA, "127.0.0.1:1")), batch=100)
