"""A program whose workers are in two rooms; handlers write down what they hear."""

from drumbeat import Drumbeat
from tests.apps import journal

app = Drumbeat()


@app.room
async def refresh(numbers: list[int]) -> None:
    journal.write("refresh", numbers=numbers)


@app.room
def news(text: str) -> None:
    journal.write("news", size=len(text))
