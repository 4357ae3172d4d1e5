"""A process that has imported the product once and forks as many children as a test wants.

Started by `tests.support.processes`, never imported by a test. It reads one JSON object a line:
`{"start": "module:function", "arguments": {…}, "environment": {…}, "log": path}`. It answers
`{"started": pid}` and, when a child ends, `{"ended": pid, "status": code}` (negative: the signal). When its
input closes it kills what is left. No connection exists before a fork: nothing but imports happens here.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    children: set[int] = set()
    unread = b""
    try:
        while True:
            readable, _, _ = select.select([0], [], [], 0.02)
            if readable:
                piece = os.read(0, 65536)
                if not piece:
                    return
                *lines, unread = (unread + piece).split(b"\n")
                for line in lines:
                    children.add(_start(json.loads(line)))
            _report_ended(children)
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(order)
    _say({"started": pid})
    return pid


def _become(order: dict[str, Any]) -> NoReturn:
    status = 1
    try:
        # A group of its own, so that what the child starts is ended with it.
        os.setpgid(0, 0)
        os.environ.update(order["environment"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        module, _, function = order["start"].partition(":")
        getattr(importlib.import_module(module), function)(**order["arguments"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - a child's way out is its status and its log, whatever was raised
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Past this point lie the parent's loop and exit handlers, which are not the child's to run.
        os._exit(status)


def _report_ended(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()
