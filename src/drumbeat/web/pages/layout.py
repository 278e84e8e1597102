"""Pages inside of the layout: what a page shows is made by its own module, here is only what all of them share."""

from __future__ import annotations

from drumbeat.durations import from_us
from drumbeat.web import template_environment
from drumbeat.web.request import DashboardRequest, DashboardResponse

from .background_acts import list_background_acts
from .formatting import FILTERS
from .health import load_health
from .navigation import NAVIGATION
from .search_query import SEARCH_HELP


async def render_page(
    request: DashboardRequest, template: str, *, page: str, title: str, status: int = 200, **facts: object
) -> DashboardResponse:
    """One page inside of base.html. `page` is its name in the navigation, `facts` what its own template wants."""
    shared: dict[str, object] = {
        "page": page,
        "title": title,
        "q": "",
        "health": await load_health(request),
        "navigation": NAVIGATION,
        "search_fields": SEARCH_HELP,
        "background_acts": list_background_acts(request),
        "now": from_us(request.app.clock.now_us()),
        "app_name": request.app.settings.name,
    }
    return render_bare_page(request, template, status=status, **(shared | facts))


def is_any_region_requested(request: DashboardRequest, *regions: str) -> bool:
    """Whether any of these regions is asked for: live.js names those that it will use, a whole page wants all."""
    asked = request.headers.get("x-refresh")
    return asked is None or not set(regions).isdisjoint(asked.split(","))


def render_bare_page(
    request: DashboardRequest, template: str, *, status: int = 200, **facts: object
) -> DashboardResponse:
    """A page without the layout, for somebody who is not let in yet."""
    template_environment.environment().filters.update(FILTERS)
    given = facts | {
        "base": request.root_path,
        "url": request.link_to,
        "static": request.static_url,
        "me": request.caller,
    }
    made = template_environment.render_template(request, template, status=status, **given)
    return DashboardResponse(
        status_code=made.status_code,
        content=made.content,
        media_type=made.media_type,
        headers={"Cache-Control": "no-store"},
    )
