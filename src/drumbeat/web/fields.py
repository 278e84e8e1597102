"""Descriptions of the fields of API records, for the OpenAPI document; and the fields that several queries and bodies share."""

from __future__ import annotations

from typing import Annotated

from drumbeat.core.field_doc import doc as doc

Limit = Annotated[int, doc("Page size, 1 to 500.")]
Before = Annotated[str | None, doc("Only items older than the one with this id: `next` of the previous page.")]
After = Annotated[str | None, doc("Only names after this one: `next` of the previous page.")]
TaskName = Annotated[str | None, doc("The name of a task.")]
QueueName = Annotated[str | None, doc("The name of a queue.")]
Key = Annotated[str | None, doc("The whole key.")]
ErrorPart = Annotated[str | None, doc("A part of the error's type or message.")]
Reason = Annotated[str, doc("Recorded in the audit.")]
