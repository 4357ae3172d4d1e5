"""A TCP proxy before a database server, which can be cut, made deaf, or lose the answer of a COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.servers import HOST, free_port

_COMMIT = b"COMMIT"
# Long enough for a server on the same machine to have done what it was told.
_TO_COMMIT_SECONDS = 0.3


class Proxy:
    """Forwards from a TCP port to a server's unix socket, as long as it is told to."""

    def __init__(self, server: Path) -> None:
        self.port = free_port()
        self.lost_answers = 0
        self._server = str(server)
        self._deaf = threading.Event()
        self._lose_next_commit = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Take connections, as at the start."""
        self._deaf.clear()
        self._listener = socket.create_server((HOST, self.port), reuse_port=False)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Take no connection any more, and cut those that there are."""
        if self._listener is not None:
            # A thread that waits in accept() is woken by shutting down, not by closing.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """Cut the connections that there are; new ones are taken."""
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def go_deaf(self) -> None:
        """Swallow whatever comes, and say nothing: half-open connections. `open` and `cut` end it."""
        self._deaf.set()

    def lose_answer_of_next_commit(self) -> None:
        """Let the next COMMIT come to the server, and cut its connection before the answer comes back."""
        self._lose_next_commit.set()

    def hear_again(self) -> None:
        """Forward again; what was swallowed is lost."""
        self._deaf.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:
                server.close()
                client.close()
                continue
            self._pairs.append((client, server))
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            up = threading.Thread(target=self._pump, args=(client, server, True), daemon=True)
            up.start()
            self._pump(server, client, False)
            up.join()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        try:
            while piece := source.recv(65536):
                if self._deaf.is_set():
                    continue
                loses = up and _COMMIT in piece and self._lose_next_commit.is_set()
                if loses:
                    self._lose_next_commit.clear()
                    # The way back is cut first, so that no answer slips through.
                    source.shutdown(socket.SHUT_RDWR)
                    self.lost_answers += 1
                sink.sendall(piece)
                if loses:
                    threading.Event().wait(_TO_COMMIT_SECONDS)
                    break
        except OSError:
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(socket_dir: Path) -> Iterator[Proxy]:
    """A proxy before the server whose unix socket lies in `socket_dir`, until the block ends."""
    running = Proxy(socket_dir / ".s.PGSQL.5432")
    try:
        yield running
    finally:
        running.close()
