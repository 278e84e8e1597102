"""Numbers with their noun, for messages."""


def format_count(number: int, one: str, many: str | None = None) -> str:
    """`1 job`, `1,200 jobs`; `many` where the plural is irregular."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
