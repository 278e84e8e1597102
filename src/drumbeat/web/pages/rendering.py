"""Pages inside of the layout: what a page shows is made by its own module, here is only what all of them share."""

from __future__ import annotations

from drumbeat.durations import from_us
from drumbeat.web import rendering
from drumbeat.web.call import Answer, Call

from .background import under_way
from .health import health_of
from .navigation import NAVIGATION
from .searching import FIELDS
from .showing import FILTERS


async def render(call: Call, template: str, *, page: str, title: str, status: int = 200, **facts: object) -> Answer:
    """One page inside of base.html. `page` is its name in the navigation, `facts` what its own template wants."""
    shared: dict[str, object] = {
        "page": page,
        "title": title,
        "q": "",
        "health": await health_of(call),
        "navigation": NAVIGATION,
        "search_fields": FIELDS,
        "under_way": under_way(call),
        "now": from_us(call.host.clock.now_us()),
        "app_name": call.host.settings.name,
    }
    return render_bare(call, template, status=status, **(shared | facts))


def wants(call: Call, *regions: str) -> bool:
    """Whether any of these regions is asked for: live.js names those that it will use, a whole page wants all."""
    asked = call.headers.get("x-refresh")
    return asked is None or not set(regions).isdisjoint(asked.split(","))


def render_bare(call: Call, template: str, *, status: int = 200, **facts: object) -> Answer:
    """A page without the layout, for somebody who is not let in yet."""
    rendering.environment().filters.update(FILTERS)
    given = facts | {"base": call.root, "url": call.url, "static": call.static, "me": call.caller}
    made = rendering.page(call, template, status=status, **given)
    return Answer(status=made.status, body=made.body, media=made.media, headers={"Cache-Control": "no-store"})
