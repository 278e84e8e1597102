"""The OpenAPI 3.1 document, generated from the route table and the records."""

from __future__ import annotations

import functools
import inspect
import re
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from drumbeat.web.problem import PROBLEM_MEDIA_TYPE, ProblemRecord
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import NoParameters, Route

REF_TEMPLATE = "#/components/schemas/{name}"
IDEMPOTENCY_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    "description": "A request that is repeated within 24 hours with the same key is done once and gets the same response.",
}
DESCRIPTION = (
    "Inspect and manage jobs, queues, schedules, locks and instances. Lists are paged by `next`; times are ISO 8601, UTC; "
    "`args`, `result` and `progress` are JSON text inside a string, so that no number is rounded."
)


async def show_openapi(request: DashboardRequest) -> Response:
    """GET /api/v1/openapi.json."""
    document = build_document(request.dashboard.panel_routes) | {"servers": [{"url": request.root_path or "/"}]}
    return Response(msgspec.json.encode(document), media_type="application/json")


@functools.cache
def build_document(extra: tuple[Route, ...] = ()) -> dict[str, Any]:
    """The document without its server; `extra` are the routes of panels."""
    from drumbeat.web.routes import ROUTES  # a cycle: this handler is in that table

    routes = [route for route in (*ROUTES, *extra) if route.is_api]
    types = [ProblemRecord, *(each for route in routes for each in (route.query, route.body, route.response) if each)]
    known = list({id(each): each for each in types}.values())
    schemas, components = msgspec.json.schema_components(known, ref_template=REF_TEMPLATE)
    of = {id(each): schema for each, schema in zip(known, schemas, strict=True)}
    _require_all_fields(components, [of[id(each)] for route in routes for each in (route.query, route.body) if each])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of, components)
    queries = {_ref_name(of[id(route.query)]) for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Drumbeat", "version": version("drumbeat"), "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # The empty one: local requests need no token if none is configured.
        "security": [{"token": []}, {}],
    }


def _require_all_fields(components: dict[str, Any], requests: list[Any]) -> None:
    """A response has all of its fields, also those with a default in Python; a problem leaves its out."""
    found: set[str] = set()
    names = {ProblemRecord.__name__, *_referenced(requests)}
    while names - found:
        found |= names
        names = _referenced([components[name] for name in names])
    for name, schema in components.items():
        if name not in found and "properties" in schema:
            schema["required"] = list(schema["properties"])


def _referenced(schemas: list[Any]) -> set[str]:
    return set(re.findall(r"'#/components/schemas/(\w+)'", str(schemas)))


def _operation(route: Route, of: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.path.split("/")[3].removesuffix(".json")],
        "summary": route.summary,
        "description": f"{inspect.getdoc(route.handler) or route.summary}\n\nNeeds the role {route.role}.",
        "parameters": [*_path_parameters(route), *_query_parameters(route, of, components)],
        "responses": {
            **{str(status): _response(route, of) for status in (200, *route.other_statuses)},
            "default": {"description": "A refusal", "content": {PROBLEM_MEDIA_TYPE: {"schema": of[id(ProblemRecord)]}}},
        },
    }
    if not route.is_safe:
        operation["parameters"].append(IDEMPOTENCY_KEY_PARAMETER)
    if route.body is not None:
        required = bool(_component(of[id(route.body)], components).get("required"))
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": of[id(route.body)]}},
        }
    return operation


def _response(route: Route, of: dict[int, Any]) -> dict[str, Any]:
    if route.response is None:
        media = "text/event-stream" if route.path.endswith("/events") else "application/json"
        return {"description": route.summary, "content": {media: {}}}
    return {"description": route.summary, "content": {"application/json": {"schema": of[id(route.response)]}}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(route: Route, of: dict[int, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is NoParameters:
        return []
    schema = _component(of[id(route.query)], components)
    parameters = []
    for name, field in schema.get("properties", {}).items():
        parameter = {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "schema": _parameter_schema(field),
        }
        if "description" in field:
            parameter["description"] = field["description"]
        parameters.append(parameter)
    return parameters


def _ref_name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _component(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = components[_ref_name(schema)]
    return found


def _parameter_schema(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a query parameter: leaving it out stands for null."""
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "description", "default")}
    options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
    if "default" in field and field["default"] is not None:
        kept["default"] = field["default"]
    if len(options) == 1:
        return {**options[0], **kept}
    return kept | ({"anyOf": options} if options else {})


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path.removeprefix("/api/v1").replace(".json", ""))
    return "_".join([route.method.lower(), *words]).replace("-", "_")
