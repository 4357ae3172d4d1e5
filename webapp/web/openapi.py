"""The OpenAPI document, written from what the product runs on.

Addresses and methods come from the URL map, who may call from the access declarations, bodies from the strict
models that read them, answers from `shapes`, codes from the table of errors. What none of these knows about a
call stands in its `Call`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flask import Flask
from pydantic import BaseModel, TypeAdapter

from webapp.errors import ERRORS
from webapp.web.policy import Door, Route, routes

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/{model}"
_PLACEHOLDER: Final = re.compile(r"<(?:[^<>:]+:)?([a-z_]+)>")
_SECURITY: Final[dict[Door, list[Schema]]] = {
    Door.PUBLIC: [],
    Door.SIGNED_IN: [{"session": []}],
    Door.USER_API: [{"userToken": []}, {"session": []}],
    Door.NODE_API: [{"nodeToken": []}],
}
# What may be answered to any call, by whom it lets in.
_ALWAYS: Final = ("bad_request", "rate_limited", "internal_error")
_AT_DOOR: Final[dict[Door, tuple[str, ...]]] = {
    Door.PUBLIC: (),
    Door.SIGNED_IN: ("unauthenticated", "permission_denied"),
    Door.USER_API: ("unauthenticated", "permission_denied", "user_token_required", "csrf_failed"),
    Door.NODE_API: ("unauthenticated", "permission_denied"),
}
_WITH_BODY: Final = ("invalid_json", "unknown_field", "payload_too_large", "unsupported_media_type")


@dataclass(frozen=True)
class Body:
    """What a call reads: a strict model, and fields `also` read by the edge itself.

    `optional`: the call may come without a body. `partial`: a field that is left out keeps what it is, so its
    default says nothing to a caller.
    """

    model: type[BaseModel]
    also: Mapping[str, Schema] = field(default_factory=dict)
    optional: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Parameter:
    """A parameter of the query string, or a header; a wrong value is `invalid_<name>` where `codes` say no other."""

    name: str
    schema: Schema
    description: str
    where: str = "query"
    codes: tuple[str, ...] | None = None

    @property
    def refusals(self) -> tuple[str, ...]:
        """The codes of a wrong value."""
        return (f"invalid_{self.name}",) if self.codes is None else self.codes


@dataclass(frozen=True)
class Maybe:
    """A part of an answer that is not always there."""

    shape: Any


@dataclass(frozen=True)
class Call:
    """What the code does not say by itself about one call.

    `answers`: status -> parts of the answer (name -> type), or the media type of an answer that is no `{"ok": …}`.
    `codes`: what may be refused beside the door, the body and the parameters. `statuses`: where a code is
    answered with other statuses than the table's.
    """

    answers: Mapping[int, Mapping[str, Any] | str]
    body: Body | None = None
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[str, ...] = ()
    statuses: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    etag: bool = False


class Incomplete(Exception):
    """A call is not described, or a description has no call."""


def refusals_of(call: Call, door: Door) -> frozenset[str]:
    """Every code that a call may be refused with."""
    codes = {*_ALWAYS, *_AT_DOOR[door], *call.codes}
    for parameter in call.parameters:
        codes.update(parameter.refusals)
    if call.body is not None:
        codes.update(_WITH_BODY)
        codes.update(_field_codes(call.body))
    return frozenset(codes)


def _field_codes(body: Body) -> Iterator[str]:
    named: Mapping[str, str] = getattr(body.model, "ERROR_CODES", {})
    for name, info in body.model.model_fields.items():
        code = named.get(name, f"invalid_{name}")
        yield code if code in ERRORS else "bad_request"
        if info.is_required() and f"{name}_required" in ERRORS:
            yield f"{name}_required"
    yield from (f"invalid_{name}" for name in body.also)


def document(
    app: Flask, calls: Mapping[str, Call], *, overrides: Mapping[str, Schema], about: Schema
) -> Schema:
    """The whole document as JSON-able values.

    `calls` describes every endpoint below `/api`; `overrides` gives better schemas to fields, by name or by
    `Model.name`; `about` is the `info` object. Raises Incomplete where calls and the URL map differ.
    """
    found = [route for route in routes(app) if route.rule.startswith("/api")]
    endpoints = {route.endpoint for route in found}
    if endpoints != set(calls):
        raise Incomplete(f"described and served differ: {sorted(endpoints ^ set(calls))}")
    writer = _Writer(calls, overrides)
    paths: dict[str, Schema] = defaultdict(dict)
    for route in found:
        for method in sorted(route.methods):
            doc = app.view_functions[route.endpoint].__doc__ or ""
            paths[path_of(route.rule)][method.lower()] = writer.operation(route, method, doc)
    return {
        "openapi": "3.1.0",
        "info": about,
        "paths": dict(paths),
        "components": {
            "schemas": dict(sorted(writer.schemas.items())),
            "securitySchemes": {
                "userToken": {"type": "http", "scheme": "bearer", "description": "A person's `utok_…`."},
                "nodeToken": {"type": "http", "scheme": "bearer", "description": "A node's `ntok_…`."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": app.config["SESSION_COOKIE_NAME"],
                    "description": "A browser that is signed in; a change also needs its `X-CSRF-Token`.",
                },
            },
        },
    }


def path_of(rule: str) -> str:
    """A route's rule as OpenAPI writes it: `/api/nodes/{node_id}`."""
    return _PLACEHOLDER.sub(r"{\1}", rule)


class _Writer:
    """Writes operations, and collects the schemas that they refer to."""

    def __init__(self, calls: Mapping[str, Call], overrides: Mapping[str, Schema]) -> None:
        self._calls = calls
        self._overrides = overrides
        self.schemas: dict[str, Schema] = {"Problem": _PROBLEM}

    def operation(self, route: Route, method: str, doc: str) -> Schema:
        call = self._calls[route.endpoint]
        summary, _, more = doc.strip().partition("\n\n")
        area, _, name = route.endpoint.partition(".")
        written: Schema = {
            "operationId": f"{area}.{name}" if len(route.methods) == 1 else f"{area}.{name}.{method.lower()}",
            "summary": " ".join(summary.split()),
            "tags": [route.rule.split("/")[2]],
            "security": _SECURITY[route.access.door],
            "responses": self._responses(call, route.access.door),
        }
        right = f"Asks for the right `{route.access.verb.value}`." if route.access.verb else ""
        description = " ".join([*more.split(), right]).strip()
        if description:
            written["description"] = description
        parameters = [*_path_parameters(route.rule), *map(_parameter, call.parameters)]
        if parameters:
            written["parameters"] = parameters
        if call.body is not None:
            written["requestBody"] = {
                "required": not call.body.optional,
                "content": {"application/json": {"schema": self._body(call.body)}},
            }
        return written

    # --- Answers ---

    def _responses(self, call: Call, door: Door) -> Schema:
        written = {str(status): self._answer(call, parts) for status, parts in sorted(call.answers.items())}
        by_status: dict[int, list[str]] = defaultdict(list)
        for code in sorted(refusals_of(call, door)):
            for status in call.statuses.get(code, (ERRORS[code][0],)):
                by_status[status].append(code)
        for status, codes in sorted(by_status.items()):
            written[str(status)] = {
                "description": ", ".join(f"`{code}`" for code in codes),
                "content": {"application/json": {"schema": _problem(codes)}},
            }
        return written

    def _answer(self, call: Call, parts: Mapping[str, Any] | str) -> Schema:
        if isinstance(parts, str):
            return {"description": parts or "Nothing.", **_content(parts)}
        properties: Schema = {"ok": {"const": True}}
        required = ["ok"]
        for name, shape in parts.items():
            if isinstance(shape, Maybe):
                properties[name] = self._schema(shape.shape)
            else:
                properties[name] = self._schema(shape)
                required.append(name)
        schema = {"type": "object", "properties": properties, "required": required}
        answer: Schema = {
            "description": ", ".join(parts) or "Done.",
            "content": {"application/json": {"schema": schema}},
        }
        if call.etag:
            words = "The revision in quotes: send it as `If-Match` with a change."
            answer["headers"] = {"ETag": {"description": words, "schema": {"type": "string"}}}
        return answer

    # --- Schemas ---

    def _schema(self, shape: Any) -> Schema:
        """The schema of a type; a named shape is kept once and referred to."""
        if isinstance(shape, dict):
            return shape
        schema: Schema = TypeAdapter(shape).json_schema(ref_template=_REF, mode="serialization")
        self._keep(schema.pop("$defs", {}))
        if not isinstance(shape, type) or shape.__module__ == "builtins":
            return _tidied(schema)
        self._keep({shape.__name__: schema})
        return {"$ref": _REF.format(model=shape.__name__)}

    def _body(self, body: Body) -> Schema:
        schema = body.model.model_json_schema(ref_template=_REF)
        self._keep(schema.pop("$defs", {}))
        properties: Schema = {}
        for name, part in schema.get("properties", {}).items():
            override = self._overrides.get(f"{body.model.__name__}.{name}", self._overrides.get(name, {}))
            properties[name] = dict(override) or _tidy(part)
            if body.partial or properties[name].get("default") == "":
                properties[name].pop("default", None)
        written = {
            "type": "object",
            "properties": {**properties, **body.also},
            "additionalProperties": False,
        }
        required = list(schema.get("required", []))
        if "schedule" in properties and not body.partial:
            # Read by the timetable package, which says itself that it is missing.
            required.append("schedule")
        return {**written, "required": required} if required else written

    def _keep(self, schemas: Mapping[str, Schema]) -> None:
        for name, schema in schemas.items():
            self.schemas[name] = _tidy(schema)


def _path_parameters(rule: str) -> Iterable[Schema]:
    for name in _PLACEHOLDER.findall(rule):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(parameter: Parameter) -> Schema:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": False,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _content(media_type: str) -> Schema:
    kind = "object" if media_type == "application/json" else "string"
    return {"content": {media_type: {"schema": {"type": kind}}}} if media_type else {}


def _problem(codes: list[str]) -> Schema:
    narrowed = {"properties": {"error": {"enum": codes}}}
    return {"allOf": [{"$ref": _REF.format(model="Problem")}, narrowed]}


def _tidied(schema: Schema) -> Schema:
    return {key: _tidy(part) for key, part in schema.items() if key != "title"}


def _tidy(schema: Any) -> Any:
    """Without the titles that are made up from names, and without our docstrings' line breaks."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(part) for key, part in schema.items() if key != "title" or not isinstance(part, str)}
    if isinstance(tidy.get("description"), str):
        tidy["description"] = " ".join(tidy["description"].split())
    return tidy


_PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "Why a call was refused. Some codes carry more, such as `current_revision`.",
    "properties": {
        "ok": {"const": False},
        "error": {"type": "string", "description": "One of the codes of `docs/api.md`."},
        "message": {"type": "string", "description": "A sentence for a person."},
        "field": {"type": "string", "description": "The input that was refused."},
    },
    "required": ["ok", "error", "message"],
}
