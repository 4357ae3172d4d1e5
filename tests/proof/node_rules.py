"""The rules of an hourly order to a node, said plainly: small lists in memory, no database, no product.

Written from the product's description, to be compared with it. Policies are as they are where nobody says otherwise:
of missed slots the newest is caught up, a slot that falls due while a run is open is skipped; failures stop nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.refusals import Refused

HOUR = timedelta(hours=1)
# So long may work that the node did not take up keep a slot, or a person, waiting.
BLOCKS_SLOTS_FOR, BLOCKS_PEOPLE_FOR = 6 * HOUR, 24 * HOUR
OPEN = ("queued", "delivered", "running")


@dataclass
class PlainRun:
    """A slot or a run by hand, what became of it, and the words that were sent (None: nothing was)."""

    slot: datetime
    by_hand: bool
    made: datetime
    status: str
    code: str | None = None
    words: str | None = None


@dataclass
class PlainOrder:
    """One standing order, each hour at a minute."""

    now: datetime
    minute: int
    words: str
    status: str = "active"
    next: datetime | None = None
    runs: list[PlainRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next = self.after(self.now)

    def after(self, instant: datetime) -> datetime:
        slot = instant.replace(minute=self.minute, second=0, microsecond=0)
        return slot if slot > instant else slot + HOUR

    @property
    def open(self) -> PlainRun | None:
        """There is never more than one."""
        return next((run for run in self.runs if run.status in OPEN), None)

    # --- What people do ---

    def pause(self) -> None:
        self._refuse_cancelled()
        if self.status == "active":
            self._leave("paused", "schedule_paused")

    def resume(self) -> None:
        self._refuse_cancelled()
        if self.status != "active":
            self.status, self.next = "active", self.after(self.now)

    def cancel(self) -> None:
        if self.status != "cancelled":
            self._leave("cancelled", "schedule_cancelled")

    def edit_words(self, words: str) -> None:
        self._refuse_cancelled()
        self.words = words

    def edit_minute(self, minute: int) -> None:
        self._refuse_cancelled()
        if minute == self.minute:
            return
        if self.status == "active":
            self._account("schedule_changed")
        self._take_back("schedule_changed", by_hand_too=False)
        self.minute = minute
        if self.status == "active":
            self.next = self.after(self.now)

    def run_now(self) -> None:
        self._refuse_cancelled()
        self._give_up(BLOCKS_PEOPLE_FOR)
        if self.open is not None:
            raise Refused("previous_run_active")
        self.runs.append(PlainRun(self.now, True, self.now, "queued", words=self.words))

    # --- What the worker and the node do ---

    def claim(self) -> None:
        if self.status != "active" or self.next is None or self.next > self.now:
            return
        slot = self._newest_due()
        self._give_up(BLOCKS_SLOTS_FOR)
        if self.open is not None:
            self.runs.append(PlainRun(slot, False, self.now, "skipped", "previous_run_active"))
        else:
            self.runs.append(PlainRun(slot, False, self.now, "queued", words=self.words))
        self.next = self.after(self.now)

    def fetch(self) -> None:
        if self.open is not None and self.open.status == "queued":
            self.open.status = "delivered"

    def acknowledge(self) -> None:
        assert self.open is not None
        self.open.status = "running"

    def reply(self, *, well: bool) -> None:
        assert self.open is not None
        run = self.open
        run.status, run.code = ("completed", None) if well else ("failed", "task_failed")

    # --- Consequences ---

    def _refuse_cancelled(self) -> None:
        if self.status == "cancelled":
            raise Refused("schedule_cancelled")

    def _leave(self, status: str, code: str) -> None:
        if self.status == "active":
            self._account(code)
        self.status, self.next = status, None
        self._take_back(code, by_hand_too=True)

    def _newest_due(self) -> datetime:
        return self.after(self.now) - HOUR

    def _account(self, code: str) -> None:
        """What was due and nobody has claimed is written down as one skipped run."""
        if self.next is not None and self.next <= self.now:
            self.runs.append(PlainRun(self._newest_due(), False, self.now, "skipped", code))

    def _give_up(self, after: timedelta) -> None:
        """What the node has not acknowledged for so long stands in nobody's way any more."""
        run = self.open
        if run is not None and run.status != "running" and self.now - run.made > after:
            run.status, run.code = "expired", "blocker_timed_out"

    def _take_back(self, code: str, *, by_hand_too: bool) -> None:
        """Whatever the node has not acknowledged."""
        for run in self.runs:
            if run.status in ("queued", "delivered") and (by_hand_too or not run.by_hand):
                run.status, run.code = "cancelled", code
