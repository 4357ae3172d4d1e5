"""One waiter per process: reads what was committed by any process and hands it to those who listen here.

A listener holds no database connection while it waits. Its queue is bounded: one that does not keep up is
closed, and its client resumes from the last event that it has seen.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from webapp.events.queries import PAGE_SIZE, StoredEvent, events_after, last_numbers
from webapp.logs import get_logger
from webapp.store import dialect

QUEUE_SIZE = 256
MAX_STREAMS = 40
MAX_WAITERS = 16

_WAIT_SECONDS = 0.5
# Events are read after each bell; and now and then without one, should a bell ever be missed.
_QUIET_ROUNDS = 10
_PAUSE_AFTER_ERROR_SECONDS = 1.0
_IDLE_SECONDS = 10.0
_CLOSE_SECONDS = 5.0

_log = get_logger(__name__)


class Subscription:
    """What one listener has not taken yet. Use it from one thread; `start` is the last event before it."""

    def __init__(self, network_pk: int, start: int, wants: Callable[[StoredEvent], bool] | None) -> None:
        self.network_pk = network_pk
        self.start = start
        self._wants = wants
        self._queue: queue.Queue[StoredEvent | None] = queue.Queue(QUEUE_SIZE)
        self._ended = threading.Event()

    def offer(self, event: StoredEvent) -> bool:
        """Put an event in line if it is wanted; False when the line is full, which ends the subscription."""
        if self._wants is not None and not self._wants(event):
            return True
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.end()
            return False
        return True

    def end(self) -> None:
        """Wake the listener for good: what it has not taken is dropped."""
        self._ended.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            # The listener is not blocked on a full line: it looks at `ended` when it takes the next one.
            return

    @property
    def ended(self) -> bool:
        """Whether no more events will come: shutdown, or too slow."""
        return self._ended.is_set()

    def take(self, timeout_seconds: float) -> StoredEvent | None:
        """The next event, or None when the time is up or the subscription has ended."""
        if self.ended:
            return None
        try:
            return self._queue.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None


class Slots:
    """A bounded number of places, such as open streams of this process."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether a place was free; it is then taken until `give`."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    def give(self) -> None:
        """Free a place that was taken."""
        with self._lock:
            self._free += 1

    @property
    def free(self) -> int:
        """How many places are left."""
        with self._lock:
            return self._free


class EventFeed:
    """The feed of this process. Its thread starts with the first listener, so never before a fork.

    `streams` and `waiters` bound how many threads of the server may be held by open streams and by long
    polls: with all of them held, nobody could open a page. `shutdown`, set by whoever is told that the process
    leaves, ends every listener within half a second.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        shutdown: threading.Event | None = None,
        max_streams: int = MAX_STREAMS,
        max_waiters: int = MAX_WAITERS,
    ) -> None:
        self._engine = engine
        self._shutdown = shutdown or threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._listeners: dict[int, list[Subscription]] = {}
        self._cursors: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self.streams = Slots(max_streams)
        self.waiters = Slots(max_waiters)

    @property
    def stopping(self) -> bool:
        """Whether the process is shutting down."""
        return self._closed.is_set() or self._shutdown.is_set()

    @contextmanager
    def listen(
        self, network_pk: int, wants: Callable[[StoredEvent], bool] | None = None
    ) -> Iterator[Subscription]:
        """Receive the events of a network that are committed after `subscription.start`, all of them, in order.

        What was committed up to and including `start` can be read from the database by then. `wants` picks
        events; it is called on the feed's thread and must be quick. After shutdown the subscription is
        ended from the beginning.
        """
        subscription = self.subscribe(network_pk, wants)
        try:
            yield subscription
        finally:
            self.unsubscribe(subscription)

    def subscribe(self, network_pk: int, wants: Callable[[StoredEvent], bool] | None = None) -> Subscription:
        """`listen` for callers that outlive a block; they call `unsubscribe` themselves."""
        with self._lock:
            if network_pk not in self._listeners:
                with self.reading() as session:
                    self._cursors[network_pk] = last_numbers(session, [network_pk])[network_pk]
                self._listeners[network_pk] = []
            subscription = Subscription(network_pk, self._cursors[network_pk], wants)
            if self.stopping:
                subscription.end()
                return subscription
            self._listeners[network_pk].append(subscription)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="event-feed", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a listener; doing it twice is harmless."""
        with self._lock:
            self._forget(subscription)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A short session for those who render events long after their request has ended."""
        with Session(self._engine, autoflush=False, expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        """End every listener at once and wait for the thread to leave; the feed cannot be used again."""
        self._closed.set()
        self._end_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _end_all(self) -> None:
        with self._lock:
            for listeners in self._listeners.values():
                for subscription in listeners:
                    subscription.end()
            self._listeners.clear()
            self._cursors.clear()
            self._changed.notify_all()

    def _forget(self, subscription: Subscription) -> None:
        listeners = self._listeners.get(subscription.network_pk)
        if listeners is None:
            return
        if subscription in listeners:
            listeners.remove(subscription)
        if not listeners:
            del self._listeners[subscription.network_pk]
            self._cursors.pop(subscription.network_pk, None)

    # The thread

    def _run(self) -> None:
        while self._wait_for_listeners():
            try:
                self._follow()
            except Exception:  # noqa: BLE001 - whatever broke, the feed has to come back
                # The database is away or has moved; listeners stay, and miss nothing: cursors stand.
                _log.exception("the event feed lost its database and tries again")
                self._closed.wait(_PAUSE_AFTER_ERROR_SECONDS)
        self._end_all()

    def _wait_for_listeners(self) -> bool:
        with self._lock:
            while not self._listeners and not self.stopping:
                self._changed.wait(_WAIT_SECONDS)
            return not self.stopping

    def _follow(self) -> None:
        """Wait on the bell and read, until nobody has listened for a while."""
        waiter = dialect.change_waiter(self._engine)
        try:
            self._pump()
            quiet, unheard_seconds = 0, 0.0
            while not self.stopping and unheard_seconds < _IDLE_SECONDS:
                rang = waiter.wait(_WAIT_SECONDS)
                quiet = 0 if rang else quiet + 1
                if rang or quiet >= _QUIET_ROUNDS:
                    self._pump()
                    quiet = 0
                unheard_seconds = 0.0 if self._listeners else unheard_seconds + _WAIT_SECONDS
        finally:
            waiter.close()

    def _pump(self) -> None:
        """Read and hand out everything that is new."""
        while not self.stopping and self._pump_once():
            pass

    def _pump_once(self) -> bool:
        """One page of each network that has listeners; True when there may be more."""
        with self._lock:
            cursors = dict(self._cursors)
        if not cursors:
            return False
        more = False
        with self.reading() as session:
            last = last_numbers(session, list(cursors))
            for network_pk, cursor in cursors.items():
                if last[network_pk] > cursor:
                    events = events_after(session, network_pk, cursor, last[network_pk])
                    self._hand_out(network_pk, cursor, events, last[network_pk])
                    more = more or len(events) == PAGE_SIZE
        return more

    def _hand_out(self, network_pk: int, cursor: int, events: Sequence[StoredEvent], last: int) -> None:
        with self._lock:
            if self._cursors.get(network_pk) != cursor:
                # Its last listener left in the meantime, and perhaps a new one came with a cursor of its own.
                return
            for event in events:
                for subscription in list(self._listeners[network_pk]):
                    if not subscription.offer(event):
                        self._listeners[network_pk].remove(subscription)
            # Pruned while we read: there is nothing to hand out, and nothing to wait for.
            self._cursors[network_pk] = events[-1].seq if events else last
