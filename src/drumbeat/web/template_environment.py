"""HTML from the templates in pages/templates. One escaping path: jinja2 with autoescape for every template.

Templates know `request` (url, static, may, caller) and what the page gives them; they hold no logic beyond loops and tests.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.web.request import DashboardRequest, DashboardResponse

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


def render_template(request: DashboardRequest, template: str, *, status: int = 200, **facts: Any) -> DashboardResponse:
    """A page: `page(request, "queues.html", queues=...)`."""
    return DashboardResponse(
        status_code=status,
        content=environment().get_template(template).render(request=request, **facts),
        media_type=HTML,
    )
