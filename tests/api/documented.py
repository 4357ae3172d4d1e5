"""Whether an answer is one that the OpenAPI document promises: the status, the code, the parts, every field."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import unquote

from flask import Flask
from pydantic import TypeAdapter
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from webapp.api.openapi import CALLS
from webapp.errors import ERRORS
from webapp.web.openapi import Maybe, refusals_of
from webapp.web.policy import access_of


def check(app: Flask, method: str, path: str, response: TestResponse) -> Any:
    """Fail unless the answer is documented; returns its JSON (None for a stream or an empty answer)."""
    answer = response.get_json(silent=True)
    endpoint = _endpoint(app, method, path)
    if response.status_code >= 400:
        _check_refusal(app, endpoint, response, answer)
        return answer
    assert endpoint is not None, f"{method} {path} is answered although it is no route"
    parts = CALLS[endpoint].answers.get(response.status_code)
    assert parts is not None, f"{endpoint} answers {response.status_code}, which is not described"
    if isinstance(parts, str):
        return answer
    assert answer.pop("ok") is True
    required = {name for name, shape in parts.items() if not isinstance(shape, Maybe)}
    assert required <= set(answer) <= set(parts), f"{endpoint} answers {sorted(answer)}"
    for name, value in answer.items():
        shape = parts[name].shape if isinstance(parts[name], Maybe) else parts[name]
        _adapter(shape).validate_python(value, strict=True)
        _check_no_more(shape, value)
    return {"ok": True, **answer}


def _check_refusal(app: Flask, endpoint: str | None, response: TestResponse, answer: Any) -> None:
    assert isinstance(answer, dict), f"{response.status_code} without JSON: {response.data[:200]!r}"
    assert answer["ok"] is False
    code = answer["error"]
    assert code in ERRORS, code
    assert isinstance(answer["message"], str)
    assert answer["message"]
    assert isinstance(answer.get("field", ""), str)
    if endpoint is None or code == "not_found":
        # An address that routing does not know, or that holds what no address may.
        return
    declared = access_of(app, endpoint)
    assert declared is not None
    call = CALLS[endpoint]
    assert code in refusals_of(call, declared.door), f"{endpoint} refuses with {code}, which is not described"
    statuses = call.statuses.get(code, (ERRORS[code][0],))
    assert response.status_code in statuses, f"{endpoint}: {code} with {response.status_code}"


def _endpoint(app: Flask, method: str, path: str) -> str | None:
    try:
        endpoint, _ = app.url_map.bind("localhost").match(unquote(path.partition("?")[0]), method)
    except HTTPException:
        return None
    return str(endpoint)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _check_no_more(shape: Any, value: Any) -> None:
    if get_origin(shape) is list:
        (inner,) = get_args(shape)
        for row in value:
            _check_no_more(inner, row)
    elif is_typeddict(shape):
        assert set(value) <= set(get_type_hints(shape)), f"{shape.__name__}: {sorted(value)}"
