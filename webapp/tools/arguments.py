"""The arguments of tools as strict models: what a model wrote is untrusted, and is checked before anything else.

The JSON schema that the model is told comes from the same models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from webapp.chat.actions import NotDone
from webapp.nodes.bodies import NodeId
from webapp.scheduling.fields import Name, Strict, Text

_MAX_FAULTS = 5

A = TypeVar("A", bound=Strict)

NodeName = Annotated[NodeId, Field(description="The alias of the node, as list_nodes tells it.")]


class NoArguments(Strict):
    """A call that takes nothing."""


class SendTask(Strict):
    """Work for one node."""

    node: NodeName
    task: Annotated[Text, Field(description="What the node is to do, in full.")]
    priority: Literal["high", "normal", "low"] = "normal"


class ProposeSchedule(Strict):
    """A standing order that a person has to confirm before it starts."""

    name: Annotated[
        Name | None, Field(description="What it is called; without it, the start of the task.")
    ] = None
    task: Annotated[Text, Field(description="What is to be done each time, in full.")]
    node: Annotated[
        NodeId | SkipJsonSchema[None],
        Field(
            description="The alias of the node that does it; left out: it is said as a prompt in this chat."
        ),
    ] = None
    schedule: Annotated[
        dict[str, Any],
        Field(
            description="When: {type: once, run_at}, {type: interval, every_seconds}, {type: daily, time: HH:MM}, "
            "{type: weekly, time, weekdays: [0-6, 0 = Sunday]} or {type: cron, cron: five fields}."
        ),
    ]
    timezone: Annotated[str, Field(description="A name such as Europe/Berlin.")] = "UTC"


def read(shape: type[A], arguments: Mapping[str, Any]) -> A:
    """The arguments, checked. Raises NotDone with what is wrong, in words for the model."""
    try:
        return shape.model_validate(dict(arguments))
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))[:100] or 'arguments'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        shown = "; ".join(faults[:_MAX_FAULTS])
        raise NotDone(f"The arguments were refused: {shown}. Nothing was done.") from None
    except RecursionError:
        raise NotDone("The arguments were refused: too deep. Nothing was done.") from None


def schema(shape: type[Strict]) -> dict[str, Any]:
    """The JSON schema of the arguments, as a model is told it."""
    described = shape.model_json_schema()
    described.pop("description", None)
    described.pop("title", None)
    return described
