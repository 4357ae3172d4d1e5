"""From untrusted values to the strict model of an operation, or to the refusals that say what is wrong.

The models stand beside the operations (`webapp/<concept>/bodies.py`), are pydantic models with
`ConfigDict(extra="forbid", strict=True)`, and are built by forms and JSON alike. Rules for them:

- A field that may be left out but not be null has a default of its own type; ask `model_fields_set` whether it
  was sent. A field that may be null says so in its type.
- A choice is a `Literal` of text (a strict enum does not take text).
- The code of a refused field is `invalid_<field>`; where it is another one, the model says so in a class
  variable `ERROR_CODES = {"field": "code"}`. An absent field is `<field>_required` where that code exists.
- A validator may raise AppError itself, with its field; it comes out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from webapp.errors import ERRORS, AppError

Model = TypeVar("Model", bound=BaseModel)


def parse(
    model: type[Model], data: Mapping[str, Any], *, before_refusal: Callable[[], object] | None = None
) -> Model:
    """The model that the JSON object `data` describes.

    `before_refusal` is called when a field is wrong, before that is said: it may raise what must be said
    first by the order of checks (scope 404, permission 403, state and revision 409, only then fields 400),
    so that a good request pays for no second look. Raises AppError `unknown_field` or the code of the first
    refused field, each with `field`.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        refusal = refusals_of(model, error)[0]
    except AppError as error:
        refusal = error
    if before_refusal is not None:
        before_refusal()
    raise refusal


def refusals_of(model: type[BaseModel], error: ValidationError) -> list[AppError]:
    """Every refused field of `model`, in the order of its fields; a form shows them all at once."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return [_refusal(model, problem) for problem in problems]


def _refusal(model: type[BaseModel], problem: ErrorDetails) -> AppError:
    field = str(problem["loc"][0]) if problem["loc"] else None
    if field is None:
        return AppError("invalid_json")
    if problem["type"] == "extra_forbidden":
        return AppError("unknown_field", field=field[:100])
    codes: Mapping[str, str] = getattr(model, "ERROR_CODES", {})
    candidates = [codes.get(field, f"invalid_{field}"), "bad_request"]
    if problem["type"] == "missing":
        candidates.insert(0, f"{field}_required")
    return AppError(next(code for code in candidates if code in ERRORS), field=field)
