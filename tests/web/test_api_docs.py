"""What is written about the API is all of it, and true: the OpenAPI document, and the table in docs/api.md."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumbeat.web.openapi import build_document
from drumbeat.web.route import AccessRole, Route
from drumbeat.web.routes import ROUTES

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
ROW = re.compile(r"\| `(GET|POST|PUT|DELETE) (/\S+)` \| (\w+) \| (.+) \|")


def row_of(route: Route) -> tuple[str, str, str, str]:
    return route.method, route.path, str(route.role), route.summary


def test_the_table_of_addresses_is_the_table_of_routes() -> None:
    """Mend it with: python -m tests.web.test_api_docs"""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert rows == [row_of(route) for route in ROUTES if route.is_api]


def test_every_write_is_on_record_and_for_more_than_viewers() -> None:
    for route in ROUTES:
        if route.is_api and not route.is_safe:
            assert route.verb, route.path
            assert route.role in (AccessRole.OPERATOR, AccessRole.ADMIN), route.path


def fields() -> list[tuple[str, str, dict[str, Any]]]:
    """Everything that a caller may write: parameters of queries, fields of bodies and of what is in them."""
    described = build_document()
    found: list[tuple[str, str, dict[str, Any]]] = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            queries = (each for each in operation["parameters"] if each["in"] == "query")
            found += [(f"{method} {path}", each["name"], each) for each in queries]
            if "requestBody" in operation:
                name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                schema = described["components"]["schemas"][name]
                found += [(name, field, facts) for field, facts in schema["properties"].items()]
    return found


def test_everything_that_a_caller_may_write_is_described() -> None:
    assert [(where, name) for where, name, facts in fields() if not facts.get("description")] == []
    assert len(fields()) > 80


def test_every_reference_in_the_document_leads_to_a_record_in_it() -> None:
    described = build_document()
    wanted = set(re.findall(r"'#/components/schemas/(\w+)'", str(described)))
    assert wanted <= described["components"]["schemas"].keys()
    assert "Page_JobRecord_" in wanted


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_the_document_is_served_to_whoever_may_look(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/openapi.json")
    assert (answer.status_code, answer.json()["openapi"]) == (200, "3.1.0")
    assert answer.json()["paths"].keys() == build_document()["paths"].keys()


def table() -> str:
    """The table as it should be."""
    rows = [f"| `{method} {path}` | {role} | {summary} |" for method, path, role, summary in map(row_of, _api())]
    return "\n".join(["| address | least role | what it does |", "|---|---|---|", *rows])


def _api() -> list[Route]:
    return [route for route in ROUTES if route.is_api]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- addresses -->\n", "<!-- /addresses -->"
    head, _, rest = text.partition(begin)
    PAGE.write_text(head + begin + table() + "\n" + end + rest.partition(end)[2], encoding="utf-8")
