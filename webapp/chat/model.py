"""One request to a model, and what the model was told and said so far.

The library behind it takes seconds to load, so it is imported inside the functions: only the threads that run turns
ever call them. A history is text in the library's own form; nothing else in the product reads it.

Failures are told apart here: what may pass by itself is transient, what a person has to mend is not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from webapp.chat import echo
from webapp.chat.profiles import NoKey, read_key
from webapp.config import ECHO, ModelProfile

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart

# However a text is cut into tokens, none of them is shorter than one octet; each message has some around it.
_AROUND_A_MESSAGE = 16
_LOOK_SECONDS = 0.25
_MAX_SAID = 200


@dataclass(frozen=True)
class Offer:
    """A tool as the model is told of it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool that the model asks for.

    `key` names the call within its turn, whatever ids the model gives. `arguments` are None where the model
    wrote something that is no JSON object.
    """

    key: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """What came back. `tokens` are None where the endpoint did not say what was used."""

    history: str
    text: str
    calls: tuple[Call, ...]
    tokens: tuple[int, int] | None


class ModelTrouble(Exception):
    """The model did not answer. `retry_after_seconds` is what its endpoint asked for, if it did."""

    def __init__(
        self, code: str, message: str, *, transient: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.transient = transient
        self.retry_after_seconds = retry_after_seconds


class Stopped(Exception):
    """The request was given up because the caller wanted so."""


def begin(instructions: str, before: Sequence[tuple[str, str]], prompt: str) -> str:
    """A new history: standing instructions, what was said before, the prompt.

    `before` holds pairs: `user` or `assistant`, and the text.
    """
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    messages: list[ModelMessage] = []
    for role, text in before:
        if role == "assistant":
            messages.append(ModelResponse(parts=[TextPart(text)]))
        else:
            messages.append(ModelRequest(parts=[UserPromptPart(text)]))
    messages.append(ModelRequest(parts=[UserPromptPart(prompt)], instructions=instructions))
    return _dump(messages)


def add_result(history: str, key: str, text: str) -> str:
    """The history with the answer to one call. Raises ValueError when that call is not open."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    messages = _load(history)
    part = _open_parts(messages).get(key)
    if part is None:
        raise ValueError(f"the call {key} is not open")
    answer = ToolReturnPart(part.tool_name, text, part.tool_call_id, metadata={"key": key})
    last = messages[-1]
    if isinstance(last, ModelRequest):
        last.parts = [*last.parts, answer]
    else:
        messages.append(ModelRequest(parts=[answer], instructions=_instructions(messages)))
    return _dump(messages)


def open_calls(history: str) -> tuple[Call, ...]:
    """The calls of the model's last answer that have no result yet, in its order."""
    return tuple(_call(key, part) for key, part in _open_parts(_load(history)).items())


def said_last(history: str) -> str:
    """The text of the model's last answer."""
    for message in reversed(_load(history)):
        if message.kind == "response":
            return message.text or ""
    return ""


def most_input_tokens(history: str, offers: Sequence[Offer]) -> int:
    """No request with this history can read more tokens than this.

    What the model has counted itself is believed; what came after is counted in octets, which is never too low.
    """
    octets = 0
    for message in reversed(_load(history)):
        usage = message.usage if message.kind == "response" else None
        if usage is not None and usage.input_tokens > 0:
            return octets + usage.input_tokens + usage.output_tokens
        octets += _octets(message)
    tools = json.dumps([[offer.name, offer.description, offer.parameters] for offer in offers])
    return octets + len(tools.encode())


def ask(
    profile: ModelProfile,
    history: str,
    offers: Sequence[Offer],
    *,
    max_output_tokens: int,
    timeout_seconds: float,
    should_stop: Callable[[], bool],
) -> Answer:
    """Make one request and return the answer.

    `should_stop` is asked a few times a second. Raises ModelTrouble, and Stopped when it said yes.
    """
    messages = _load(history)
    if profile.name == ECHO:
        response = _echo(messages, offers)
    else:
        response = asyncio.run(
            _stoppable(_request(profile, messages, offers, max_output_tokens, timeout_seconds), should_stop)
        )
    messages.append(response)
    calls = tuple(_call(key, part) for key, part in _open_parts(messages).items())
    usage = response.usage
    counted = usage.input_tokens + usage.output_tokens > 0
    try:
        kept = _dump(messages)
    except ValueError:
        # Halves of surrogate pairs can be sent, but neither kept nor sent back.
        raise ModelTrouble(
            "model_failed", "The model answered with letters that do not exist.", transient=False
        ) from None
    return Answer(
        history=kept,
        text=response.text or "",
        calls=calls,
        tokens=(usage.input_tokens, usage.output_tokens) if counted else None,
    )


# The request


async def _stoppable(request: Any, should_stop: Callable[[], bool]) -> ModelResponse:
    """Wait for the request, or give it up when the caller does not want it any more."""
    task = asyncio.ensure_future(request)
    while True:
        done, _ = await asyncio.wait([task], timeout=_LOOK_SECONDS)
        if done:
            response: ModelResponse = task.result()
            return response
        if should_stop():
            task.cancel()
            await asyncio.wait([task])
            raise Stopped


async def _request(
    profile: ModelProfile,
    messages: list[ModelMessage],
    offers: Sequence[Offer],
    max_output_tokens: int,
    timeout_seconds: float,
) -> ModelResponse:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

    _quiet_libraries()
    try:
        key = read_key(profile)
    except NoKey as error:
        raise ModelTrouble("model_unavailable", str(error), transient=False) from None
    tools = [
        ToolDefinition(
            name=offer.name, description=offer.description, parameters_json_schema=offer.parameters
        )
        for offer in offers
    ]
    settings = ModelSettings(
        max_tokens=max_output_tokens, timeout=timeout_seconds, request_timeout=timeout_seconds
    )
    try:
        # Tries are counted and spaced by the turn, never by the library.
        async with AsyncOpenAI(
            base_url=profile.base_url,
            # The library wants one, and would else look for another service's in the environment.
            api_key=key or "none",
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=_certificates()),
        ) as client:
            provider = OpenAICompatibleProvider(profile.name, openai_client=client)
            async with model_request_stream(
                OpenAIChatModel(profile.model, provider=provider),
                messages,
                model_settings=settings,
                model_request_parameters=ModelRequestParameters(function_tools=tools),
            ) as stream:
                async for _ in stream:
                    pass
                response = stream.get()
    except ModelAPIError as error:
        raise _trouble(error, key) from None
    except UnexpectedModelBehavior:
        raise ModelTrouble(
            "model_failed", "The model's endpoint answered in a form that cannot be read.", transient=True
        ) from None
    if not (response.provider_details or {}).get("finish_reason"):
        # A stream that just ends looks like an answer: half of one must not be taken for the whole.
        raise ModelTrouble("model_failed", "The connection to the model broke off.", transient=True)
    return response


def _trouble(error: Any, key: str | None) -> ModelTrouble:
    from pydantic_ai import exceptions

    status = getattr(error, "status_code", None)
    said = _said(error, key, status)
    if isinstance(error, exceptions.ModelQuotaExceededError):
        return ModelTrouble(
            "model_unavailable", f"The account of the model is used up{said}.", transient=False
        )
    if status == 429:
        wait = error.retry_after
        return ModelTrouble(
            "model_failed",
            f"The model's endpoint asked us to wait{said}.",
            transient=True,
            retry_after_seconds=None if wait is None else max(0.0, float(wait)),
        )
    if isinstance(error, exceptions.ModelConnectionError):
        return ModelTrouble(
            "model_failed", "The model's endpoint could not be reached or broke off.", transient=True
        )
    if isinstance(error, exceptions.ModelRequestTimeout):
        return ModelTrouble("model_failed", "The model did not answer in time.", transient=True)
    if status is not None and (status >= 500 or status == 408):
        wait = error.retry_after
        return ModelTrouble(
            "model_failed",
            f"The model's endpoint failed{said}.",
            transient=True,
            retry_after_seconds=None if wait is None else max(0.0, float(wait)),
        )
    if status in (401, 403):
        return ModelTrouble(
            "model_unavailable", f"The model's endpoint refused the key{said}.", transient=False
        )
    if status == 404:
        return ModelTrouble("model_unavailable", f"The endpoint knows no such model{said}.", transient=False)
    return ModelTrouble("model_failed", f"The model's endpoint refused the request{said}.", transient=False)


def _said(error: Any, key: str | None, status: int | None) -> str:
    """What the endpoint said, in brackets, without the key; nothing of it where it speaks of keys."""
    if status is None:
        return ""
    body = error.body if isinstance(error.body, dict) else {}
    words = body.get("message")
    if status in (401, 403) or not isinstance(words, str):
        return f" (HTTP {status})"
    if key:
        words = words.replace(key, "***")
    return f" (HTTP {status}: {words[:_MAX_SAID]})"


def _octets(message: ModelMessage) -> int:
    """What a message says, in octets, with what stands around it on the way to the model."""
    said = [message.instructions or ""] if message.kind == "request" else []
    for part in message.parts:
        for field in ("content", "args", "tool_name"):
            value = getattr(part, field, None)
            said.append(value if isinstance(value, str) else json.dumps(value, default=str) if value else "")
    return sum(len(text.encode()) for text in said) + _AROUND_A_MESSAGE * (len(message.parts) + 1)


@cache
def _certificates() -> ssl.SSLContext:
    # Reading the authorities takes longer than all the rest of a short request.
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _quiet_libraries() -> None:
    # They would write the address of every request into the log.
    for name in ("httpx", "httpx2", "httpcore", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)


# Histories


def _load(history: str) -> list[ModelMessage]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_json(history)


def _dump(messages: Sequence[ModelMessage]) -> str:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.dump_json(list(messages)).decode()


def _instructions(messages: Sequence[ModelMessage]) -> str | None:
    for message in reversed(messages):
        if message.kind == "request" and message.instructions is not None:
            return message.instructions
    return None


def _open_parts(messages: Sequence[ModelMessage]) -> dict[str, ToolCallPart]:
    """The calls of the last answer without a result, by the key that their place gives them."""
    from pydantic_ai.messages import ToolCallPart, ToolReturnPart

    if not messages:
        return {}
    answered: set[str] = set()
    last: ModelRequest | ModelResponse = messages[-1]
    count = sum(message.kind == "response" for message in messages)
    if last.kind == "request":
        answered = {
            part.metadata["key"]
            for part in last.parts
            if isinstance(part, ToolReturnPart) and isinstance(part.metadata, dict)
        }
        if not answered:
            return {}
        last = messages[-2]
    calls = [part for part in last.parts if isinstance(part, ToolCallPart)]
    keys = {f"{count}.{place}": part for place, part in enumerate(calls, 1)}
    return {key: part for key, part in keys.items() if key not in answered}


def _call(key: str, part: ToolCallPart) -> Call:
    arguments: Any = part.args
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if arguments is None and not part.args:
        arguments = {}
    return Call(key, part.tool_name, arguments if isinstance(arguments, dict) else None)


def _echo(messages: Sequence[ModelMessage], offers: Sequence[Offer]) -> ModelResponse:
    """The built-in model: see `echo.py` for what it says."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.usage import RequestUsage

    prompt = ""
    results: list[tuple[str, str]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                prompt, results = part.content, []
            elif isinstance(part, ToolReturnPart):
                results.append((part.tool_name, str(part.content)))
    said = echo.answer(prompt, results, {offer.name for offer in offers})
    parts: list[Any] = [TextPart(said.text)] if said.text else []
    parts += [
        ToolCallPart(name, dict(arguments), f"echo_{number}")
        for number, (name, arguments) in enumerate(said.calls, 1)
    ]
    words = len(said.text.split()) + sum(len(str(arguments).split()) + 1 for _, arguments in said.calls)
    read = sum(len(str(getattr(part, "content", "")).split()) for m in messages for part in m.parts)
    return ModelResponse(
        parts=parts,
        usage=RequestUsage(input_tokens=max(1, read), output_tokens=max(1, words)),
        model_name=ECHO,
    )
