"""Descriptions of fields that the API shows: `age: Annotated[int, doc("Years.")]` is in the OpenAPI document."""

from msgspec import Meta


def doc(text: str) -> Meta:
    return Meta(description=text)
