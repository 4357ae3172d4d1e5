"""A real HTTP server that speaks the OpenAI chat-completions wire format and does what a test tells it.

Each request takes the next of the replies that the test has queued (`will`), or the standing one. Every request is
kept with its headers and body, so that a test can count what was sent.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MODEL = "told-what-to-say"


@dataclass(frozen=True)
class Answer:
    """The model says `text`, cut into `pieces` when it streams, `seconds_between` them."""

    text: str = "Done."
    input_tokens: int = 20
    output_tokens: int = 5
    pieces: int = 3
    seconds_between: float = 0.0
    says_usage: bool = True


@dataclass(frozen=True)
class Calls:
    """The model asks for tools: pairs of a tool's name and its arguments (a dict, or text as it stands)."""

    calls: Sequence[tuple[str, Mapping[str, Any] | str]]
    text: str = ""
    input_tokens: int = 20
    output_tokens: int = 5
    # The ids that the model gives its calls; fresh ones where none are named.
    ids: Sequence[str] = ()


@dataclass(frozen=True)
class Refusal:
    """An HTTP error, with `Retry-After` where seconds (or a date as text) are given."""

    status: int
    retry_after: float | str | None = None
    message: str = "The server was told to refuse."
    code: str | None = None


@dataclass(frozen=True)
class Hang:
    """Take the request and never answer, until the client goes or the server stops."""


@dataclass(frozen=True)
class Drop:
    """Close the connection: at once, or after `pieces` of an answer."""

    pieces: int = 0


@dataclass(frozen=True)
class Held:
    """Say so by `arrived` when the request is there; answer when `release` is set."""

    reply: Reply
    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Reply = Answer | Calls | Refusal | Hang | Drop | Held


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """What each message says, in their order."""
        return [_text_of(message) for message in self.body["messages"]]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


class ModelServer:
    """What the test sees of the server."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.requests: list[Received] = []
        self.standing: Reply = Answer()
        self.closing = threading.Event()
        # Set when an answer has been sent whole.
        self.answered = threading.Event()
        self._queue: deque[Reply] = deque()
        self._change = threading.Condition()
        self._numbers = itertools.count(1)

    def will(self, *replies: Reply) -> None:
        """Answer the next requests with these, in their order."""
        with self._change:
            self._queue.extend(replies)

    @property
    def count(self) -> int:
        """How many requests have come in."""
        return len(self.requests)

    def wait_for(self, count: int, seconds: float = 20.0) -> None:
        """Wait until `count` requests have come in. Raises AssertionError when they do not."""
        with self._change:
            came = self._change.wait_for(lambda: self.count >= count, seconds)
        assert came, f"{self.count} of {count} requests came within {seconds:g} s"

    def take(self, received: Received) -> Reply:
        """Keep a request and give the reply it is to have."""
        with self._change:
            self.answered.clear()
            self.requests.append(received)
            self._change.notify_all()
            return self._queue.popleft() if self._queue else self.standing

    def left_over(self) -> list[Reply]:
        """What it was told to say and nobody has asked for; forgotten with this."""
        with self._change:
            left = list(self._queue)
            self._queue.clear()
        return left

    def number(self) -> int:
        """A number that nobody had yet."""
        return next(self._numbers)


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Run the server on a free port of the loopback address until the block ends."""
    http = _Http(("127.0.0.1", 0), _Handler)
    http.told = ModelServer(http.server_port)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield http.told
    finally:
        http.told.closing.set()
        http.shutdown()
        http.server_close()
        thread.join(10)


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    told: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        told = self.server.told
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._reply(told.take(Received(self.path, headers, body)), body)

    def log_message(self, format: str, *args: Any) -> None:
        """The test's output is not the place."""

    def _reply(self, reply: Reply, body: Mapping[str, Any]) -> None:
        told = self.server.told
        if isinstance(reply, Held):
            reply.arrived.set()
            while not (reply.release.wait(0.05) or told.closing.is_set() or self._is_gone()):
                pass
            reply = reply.reply
        assert not isinstance(reply, Held), "a reply is held once"
        if isinstance(reply, Hang):
            while not (told.closing.wait(0.05) or self._is_gone()):
                pass
            self.close_connection = True
        elif isinstance(reply, Refusal):
            self._refuse(reply)
        elif isinstance(reply, Drop) and reply.pieces == 0:
            self._drop()
        elif body.get("stream"):
            self._stream(reply)
        elif isinstance(reply, Drop):
            self._drop()
        else:
            self._send(200, self._whole(reply))

    def _is_gone(self) -> bool:
        """Whether the client has closed its end."""
        self.connection.setblocking(False)
        try:
            return len(self.connection.recv(1, socket.MSG_PEEK)) == 0
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            with suppress(OSError):
                self.connection.setblocking(True)

    def _drop(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, reply: Refusal) -> None:
        error = {"error": {"message": reply.message, "type": "refused", "code": reply.code}}
        extra = {} if reply.retry_after is None else {"Retry-After": str(reply.retry_after)}
        self._send(reply.status, error, extra)

    def _send(self, status: int, body: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> None:
        octets = json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(octets)), **(extra or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(octets)

    def _whole(self, reply: Answer | Calls) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if isinstance(reply, Calls):
            message["tool_calls"] = self._tool_calls(reply)
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        whole: dict[str, Any] = {**self._frame("chat.completion"), "choices": [choice]}
        if _says_usage(reply):
            whole["usage"] = _usage(reply)
        return whole

    def _stream(self, reply: Answer | Calls | Drop) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        # In chunks, so that a client can tell an end from a connection that broke.
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(reply, Drop):
            for number in range(reply.pieces):
                self._event({"role": "assistant", "content": f"piece {number} "})
            self._drop()
            return
        self._event({"role": "assistant", "content": ""})
        for piece in _pieces(reply):
            if isinstance(reply, Answer) and reply.seconds_between:
                self.server.told.closing.wait(reply.seconds_between)
            self._event({"content": piece})
        if isinstance(reply, Calls):
            calls = self._tool_calls(reply)
            self._event({"tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]})
        self._event({}, finish=_finish(reply))
        if _says_usage(reply):
            self._line({**self._frame("chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        self.server.told.answered.set()

    def _event(self, delta: Mapping[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._line({**self._frame("chat.completion.chunk"), "choices": [choice]})

    def _line(self, chunk: Mapping[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(chunk)}\n\n".encode())

    def _chunk(self, octets: bytes) -> None:
        self.wfile.write(f"{len(octets):x}\r\n".encode() + octets + b"\r\n")
        self.wfile.flush()

    def _frame(self, kind: str) -> dict[str, Any]:
        number = self.server.told.number()
        return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_796_000_000, "model": _MODEL}

    def _tool_calls(self, reply: Calls) -> list[dict[str, Any]]:
        ids = list(reply.ids) or [f"call_{self.server.told.number()}" for _ in reply.calls]
        return [
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for call_id, (name, arguments) in zip(ids, reply.calls, strict=True)
        ]


def _pieces(reply: Answer | Calls) -> list[str]:
    count = reply.pieces if isinstance(reply, Answer) else 1
    size = max(1, -(-len(reply.text) // count))
    return [reply.text[begin : begin + size] for begin in range(0, len(reply.text), size)]


def _finish(reply: Answer | Calls) -> str:
    return "tool_calls" if isinstance(reply, Calls) else "stop"


def _says_usage(reply: Answer | Calls) -> bool:
    return not isinstance(reply, Answer) or reply.says_usage


def _usage(reply: Answer | Calls) -> dict[str, int]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
