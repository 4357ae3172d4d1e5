"""How soon does a page hear of it, with 1 and with 200 streams open?

`python bench/listeners.py [--quick] [--engine sqlite|postgresql]`

Real streams over HTTP, all of one network, read by one process. Sixty events (`--quick`: fifteen), a quarter of a
second apart; from the commit of each to its last byte at each listener. A web process holds at most 40 streams and
sends others away, so as many processes are started as that takes; whoever is sent away comes back.

Prints a table and writes JSON to `bench/results/listeners.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._herd import fresh_database  # noqa: E402
from bench._stand import ENGINES, spread, web, write_results  # noqa: E402
from tests.factories import bearer, make_cast, make_token  # noqa: E402
from tests.support.databases import START, config_for, dispose_engines  # noqa: E402
from tests.support.servers import HOST  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.clock import FrozenClock, SystemClock  # noqa: E402
from webapp.events import outbox  # noqa: E402
from webapp.events.feed import MAX_STREAMS  # noqa: E402
from webapp.store.transaction import Tx, operation  # noqa: E402

COUNTS, QUICK_COUNTS = (1, 10, 50, 100, 200), (1, 20)
# Connections are not shared out evenly among the processes.
STREAMS_A_PROCESS = MAX_STREAMS * 5 // 8
BETWEEN_SECONDS = 0.25
OPEN_SECONDS, LAST_SECONDS = 60.0, 10.0


@operation
def tell(tx: Tx, network_pk: int, number: int) -> None:
    """One event, as a dispatch leaves it."""
    outbox.emit(
        tx, network_pk, "run", {"schedules": [], "runs": [], "number": number}, now=SystemClock().now()
    )


class Listeners:
    """Open streams, read by a thread of their own; `heard` is (number of the event, when its last byte came)."""

    def __init__(self, port: int, token: str) -> None:
        head = {"Host": f"{HOST}:{port}", **bearer(token)}
        lines = ["GET /api/events HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        self._request = "\r\n".join(lines).encode()
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self.heard: list[tuple[int, float]] = []
        self._reader = threading.Thread(target=self._read)

    def open(self, count: int) -> None:
        """Open so many. Raises TimeoutError when there is no place for them."""
        deadline = time.monotonic() + OPEN_SECONDS
        while len(self._open) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._open)} of {count} streams")
            stream = socket.create_connection((HOST, self._port), timeout=30)
            stream.sendall(self._request)
            # The position comes with the head, or soon after it.
            if b" 200 " not in stream.recv(4096).split(b"\r\n", 1)[0]:
                stream.close()
                time.sleep(0.05)
                continue
            stream.setblocking(False)
            self._selector.register(stream, selectors.EVENT_READ, bytearray())
            self._open.append(stream)
        self._reader.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.1):
                with contextlib.suppress(BlockingIOError):
                    self._take(key.data, key.fileobj.recv(65536))  # type: ignore[union-attr]

    def _take(self, unread: bytearray, piece: bytes) -> None:
        now = time.perf_counter()
        unread += piece
        while b"\n\n" in unread:
            block, _, rest = bytes(unread).partition(b"\n\n")
            unread[:] = rest
            for line in block.split(b"\n"):
                if line.startswith(b"data: "):
                    self.heard.append((json.loads(line[6:])["number"], now))

    def close(self) -> None:
        """End all of them."""
        self._stop.set()
        if self._reader.is_alive():
            self._reader.join()
        for stream in self._open:
            stream.close()


@contextlib.contextmanager
def listening(port: int, token: str, count: int) -> Iterator[Listeners]:
    """So many open streams until the block ends."""
    listeners = Listeners(port, token)
    try:
        listeners.open(count)
        yield listeners
    finally:
        listeners.close()


def measure(name: str, counts: tuple[int, ...], events: int) -> list[dict[str, Any]]:
    """Milliseconds from commit to arrival on one engine, for each number of listeners."""
    found = []
    with tempfile.TemporaryDirectory() as place, fresh_database(name, Path(place)) as url:
        app = create_app(config_for(url), FrozenClock(START))
        logging.getLogger().setLevel(logging.WARNING)
        with app.app_context():
            cast = make_cast()
            token = make_token(cast.vera, network=cast.network, now=SystemClock().now())
            for count in counts:
                processes = max(config_for(url).web_processes, -(-count // STREAMS_A_PROCESS))
                with (
                    web(url, 0.0, processes=processes) as (_, port),
                    listening(port, token, count) as listeners,
                ):
                    late = _late(listeners, cast.network.id, count, events)
                found.append({"listeners": count, "processes": processes, **spread(late)})
                print(f"  {name}: {count} listeners measured", flush=True)
        dispose_engines(app)
    return found


def _late(listeners: Listeners, network_pk: int, count: int, events: int) -> list[float]:
    time.sleep(1.0)
    told = []
    for number in range(events):
        tell(network_pk, number)
        told.append(time.perf_counter())
        time.sleep(BETWEEN_SECONDS)
    deadline = time.monotonic() + LAST_SECONDS
    while len(listeners.heard) < count * events and time.monotonic() < deadline:
        time.sleep(0.05)
    heard = list(listeners.heard)
    assert len(heard) == count * events, f"{len(heard)} of {count * events} were heard"
    return [1000 * max(0.0, at - told[number]) for number, at in heard]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    asked, _ = parser.parse_known_args()
    counts, events = (QUICK_COUNTS, 15) if asked.quick else (COUNTS, 60)
    results = {name: measure(name, counts, events) for name in asked.engine or ENGINES}
    for name, rows in results.items():
        print(f"\n{name}\n{'listeners':>10}{'processes':>11}{'heard':>8}{'half':>9}{'99 %':>9}{'worst':>9}")
        for row in rows:
            print(
                f"{row['listeners']:>10}{row['processes']:>11}{row['count']:>8}{row['p50']:>9.1f}{row['p99']:>9.1f}"
                f"{row['worst']:>9.1f}"
            )
    write_results("listeners", results=results)


if __name__ == "__main__":
    main()
