"""Rendering of pages: the jinja2 environment, and what every page inside of base.html shows.

One escaping path: autoescape for every template. Templates hold no logic beyond loops and tests.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from starlette.responses import Response

from drumbeat.durations import from_us
from drumbeat.glossary import meaning_of
from drumbeat.web.request import DashboardRequest

from .background_acts import list_background_acts
from .formatting import FILTERS
from .health import load_health
from .navigation import NAVIGATION
from .search_query import SEARCH_HELP

FOLDER = Path(__file__).parent / "templates"
HTML = "text/html; charset=utf-8"


@functools.cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS, commands=mark_commands)
    made.globals["term"] = term_title
    return made


def term_title(name: str) -> Markup:
    """The title attribute that explains a heading with the glossary: `<th{{ term('lease') }}>`."""
    return Markup(' title="{}"').format(meaning_of(name))


def mark_commands(text: str) -> Markup:
    """Text as HTML: what stands between backticks is code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in parts)


async def render_page(
    request: DashboardRequest, template: str, *, page: str, title: str, status: int = 200, **facts: object
) -> Response:
    """One page inside of base.html. `page` is its name in the navigation, `facts` the variables of its own template."""
    shared: dict[str, object] = {
        "page": page,
        "title": title,
        "q": "",
        "health": await load_health(request),
        "navigation": NAVIGATION,
        "search_fields": SEARCH_HELP,
        "background_acts": await list_background_acts(request, page),
        "now": from_us(request.app.clock.now_us()),
        "app_name": request.app.settings.name,
    }
    return render_bare_page(request, template, status=status, **(shared | facts))


def is_any_region_requested(request: DashboardRequest, *regions: str) -> bool:
    """Whether any of these regions is needed: live.js names those that it will replace, a whole page needs all."""
    requested = request.headers.get("x-refresh")
    return requested is None or not set(regions).isdisjoint(requested.split(","))


def render_bare_page(request: DashboardRequest, template: str, *, status: int = 200, **facts: object) -> Response:
    """A page without the layout, such as the login."""
    shared: dict[str, object] = {
        "request": request,
        "base": request.root_path,
        "url": request.link_to,
        "static": request.static_url,
        "me": request.caller,
    }
    text = environment().get_template(template).render(shared | facts)
    # Lone surrogates of stored names are replaced: they must not fail a page.
    return Response(text.encode("utf-8", "replace"), status, media_type=HTML)
