"""The example node as a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.databases import ROOT

EXAMPLE = ROOT / "examples" / "node.py"
_COUNT_WORDS = "import sys; print(len(sys.stdin.read().split()), 'words')"
_STOP_SECONDS = 10.0


@contextmanager
def example_node(url: str, token: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `examples/node.py` against `url` until the block ends; it answers with the number of words.

    `folder` takes its log and its answers. SIGTERM must lead to a clean end.
    """
    log, state = folder / "node.log", folder / "node.json"
    count = [sys.executable, "-c", _COUNT_WORDS]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--url", url, "--state", str(state), "--", *count],
            env={**os.environ, "CARILLON_NODE_TOKEN": token},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
        assert process.poll() is None, f"the node left by itself:\n{log.read_text(errors='replace')}"
        process.send_signal(signal.SIGTERM)
        status = process.wait(_STOP_SECONDS)
        assert status == 0, f"the node left with {status}:\n{log.read_text(errors='replace')}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
