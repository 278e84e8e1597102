"""The dashboard: pages, API and metrics of one app, as an ASGI application.

It is served by `drumbeat dashboard`, or mounted by an application under a path of its own. It needs the packages of
`drumbeat[web]`, which are imported with the first dashboard. Nothing runs while there are no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from drumbeat.errors import ConfigError
from drumbeat.web.route import AccessRole, Caller

if TYPE_CHECKING:
    from drumbeat.admin import Admin
    from drumbeat.web.access import Access
    from drumbeat.web.asgi import Dashboard
    from drumbeat.web.panels import Panel

__all__ = ["AccessRole", "Caller", "Dashboard", "dashboard"]


def dashboard(app: Admin, access: Access | Literal["open"] | None = None, *, panels: Sequence[Panel] = ()) -> Dashboard:
    """The dashboard of an app as an ASGI application; `panels` are added to its overview.

    access: a function that identifies callers; "open": local requests are admin, unless there are tokens or a proxy; None:
    only tokens or a proxy.

    Raises:
        ImportError: a package of drumbeat[web] is missing.
    """
    if isinstance(access, str) and access != "open":
        raise ConfigError(f'access must be a function or "open", not {access[:40]!r}', "access")
    # Used later, but a missing package should be reported here.
    import jinja2  # noqa: F401
    import starlette.responses  # noqa: F401

    from drumbeat.web.asgi import Dashboard

    return Dashboard(app, access, panels=panels)


def __getattr__(name: str) -> Any:
    if name == "Dashboard":
        from drumbeat.web.asgi import Dashboard

        return Dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
