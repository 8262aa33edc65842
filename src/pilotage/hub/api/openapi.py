"""The OpenAPI document, made from the table of routes and its types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pilotage.hub.api import answers
from pilotage.hub.api.call import Nothing, Route
from pilotage.hub.api.routes import PREFIX

_REF = "#/components/schemas/{name}"
_WHY = {
    "400": "What was sent is no JSON.",
    "401": "There is no token, or it is no longer valid.",
    "403": "The token is not enough.",
    "404": "There is no such thing.",
    "405": "It cannot be asked for in this way.",
    "408": "The sender fell silent.",
    "409": "A conflict with the current state.",
    "413": "It is too large.",
    "422": "The request is not valid.",
    "503": "The store cannot be used now.",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Describe all routes as OpenAPI 3.1."""
    routes = list(routes)
    types = list(dict.fromkeys(kind for route in routes for kind in _types(route)))
    found, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        place = paths.setdefault(PREFIX + route.path, {})
        place[route.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pilotage",
            "version": "1",
            "description": "Events make jobs, jobs meet pilots, results are events again.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(route: Route) -> list[Any]:
    some = [answers.Problem, route.named, route.query, route.body, route.answer]
    return [one for one in some if one is not None]


def _operation(
    route: Route, schemas: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    answer = schemas[route.answer] if route.answer is not None else {"type": "string"}
    facts: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.says,
        "description": f"Needs a token for {route.scope}.",
        "parameters": [
            *_parameters(route.named, "path", components),
            *_parameters(route.query, "query", components),
        ],
        "responses": {
            str(route.status): {
                "description": route.says,
                "content": {route.media: {"schema": answer}},
            },
            **{code: _problem(words, schemas) for code, words in _WHY.items()},
        },
    }
    if route.body is not None:
        content = {"application/json": {"schema": schemas[route.body]}}
        facts["requestBody"] = {"required": True, "content": content}
    return facts


def _name(route: Route) -> str:
    words = [word for word in route.path.split("/") if word and not word.startswith("{")]
    return "_".join([route.method.lower(), *words, *(["one"] if route.path.endswith("}") else [])])


def _problem(words: str, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    content = {"application/json": {"schema": schemas[answers.Problem]}}
    return {"description": words, "content": content}


def _parameters(kind: type, where: str, components: dict[str, Any]) -> list[dict[str, Any]]:
    if kind is Nothing:
        return []
    schema = components[kind.__name__]
    return [
        {
            "name": name,
            "in": where,
            "required": where == "path" or name in schema["required"],
            "schema": _plain(facts),
        }
        for name, facts in schema["properties"].items()
    ]


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Describe a parameter that may be left out: nothing is not a value in a query."""
    options = [one for one in facts.get("anyOf", []) if one != {"type": "null"}]
    if len(options) != 1:
        return facts
    kept: dict[str, Any] = {
        name: value for name, value in facts.items() if name not in {"anyOf", "default"}
    }
    kept.update(options[0])
    return kept
