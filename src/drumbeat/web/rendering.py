"""HTML from the templates in pages/templates. One escaping path: jinja2 with autoescape for every template.

Templates know `call` (url, static, may, caller) and what the page gives them; they hold no logic beyond loops and tests.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.web.call import Answer, Call

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent / "pages" / "templates"
HTML = "text/html; charset=utf-8"


@functools.cache
def environment() -> jinja2.Environment:
    """The one environment; pages add their filters to it where they are imported."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(call: Call, template: str, *, status: int = 200, **facts: Any) -> Answer:
    """A page: `page(call, "queues.html", queues=...)`."""
    return Answer(status=status, body=environment().get_template(template).render(call=call, **facts), media=HTML)
