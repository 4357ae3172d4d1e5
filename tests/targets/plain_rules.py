"""The rules of schedules in a chat, said once more and plainly: small lists in memory, no database, no product.

Written from the product's description, not from its code, to be compared with it. It knows: two schedules of one
sponsor that speak into one chat, each hourly at some minute or once at some instant; their mandates; the people's
own messages; policies as they are where nobody says otherwise (catch up once, skip an overlap, stop at the first
failure).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.refusals import Refused

HOUR = timedelta(hours=1)
# A mandate is renewed for as long as it lasted, and at least for a day.
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Hourly:
    """Each hour at a minute."""

    minute: int

    def after(self, instant: datetime) -> datetime | None:
        slot = instant.replace(minute=self.minute, second=0, microsecond=0)
        return slot if slot > instant else slot + HOUR


@dataclass(frozen=True)
class Once:
    """One instant."""

    at: datetime

    def after(self, instant: datetime) -> datetime | None:
        return self.at if self.at > instant else None


Times = Hourly | Once


@dataclass
class PlainMandate:
    """Authority: since when, until when, and whether it is active, paused or revoked."""

    since: datetime
    until: datetime | None = None
    state: str = "active"

    def expired(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now


@dataclass
class PlainRun:
    """A slot or a run by hand, and what became of it. `text` and `edition` are those it was sent with."""

    slot: datetime
    by_hand: bool
    status: str
    code: str | None
    text: str
    edition: int
    stop_code: str | None = None
    # Which of two runs of one instant was accepted first.
    number: int = field(default_factory=itertools.count().__next__)

    @property
    def open(self) -> bool:
        return self.status in ("queued", "delivered", "running")

    @property
    def sent(self) -> bool:
        return self.status in ("delivered", "running")

    def end(self, status: str, code: str | None) -> None:
        self.status, self.code = status, code


@dataclass
class PlainSchedule:
    """A standing prompt."""

    times: Times
    text: str
    mandate: PlainMandate
    next: datetime | None
    status: str = "active"
    reason: str | None = None
    edition: int = 1
    failures: int = 0
    runs: list[PlainRun] = field(default_factory=list)

    @property
    def open_runs(self) -> list[PlainRun]:
        return [run for run in self.runs if run.open]


@dataclass
class PlainRoom:
    """The chat with everything that hangs on it."""

    now: datetime
    schedules: list[PlainSchedule] = field(default_factory=list)
    archived: bool = False
    sponsor_active: bool = True
    sponsor_member: bool = True
    messages: int = 0

    # --- What is asked again and again ---

    def owner_of(self, run: PlainRun) -> PlainSchedule:
        return next(schedule for schedule in self.schedules if run in schedule.open_runs)

    @property
    def at_work(self) -> PlainRun | None:
        """The run whose turn has begun."""
        return next(
            (run for schedule in self.schedules for run in schedule.runs if run.status == "running"), None
        )

    @property
    def idle(self) -> bool:
        return not self.messages and not any(run.sent for one in self.schedules for run in one.runs)

    @property
    def something_to_do(self) -> bool:
        """Whether a turn is at work or waits for a worker."""
        return not self.idle

    def refusal(self, schedule: PlainSchedule, mandate: PlainMandate | None = None) -> str | None:
        """Why this schedule may not send anything now; `mandate` stands in for its own."""
        mandate = mandate or schedule.mandate
        if not self.sponsor_active:
            return "sponsor_inactive"
        if not self.sponsor_member:
            return "sponsor_not_permitted"
        if mandate.state == "revoked":
            return "mandate_revoked"
        if mandate.expired(self.now):
            return "mandate_expired"
        if mandate.state == "paused":
            return "mandate_paused"
        return "chat_archived" if self.archived else None

    # --- What people do ---

    def pause(self, schedule: PlainSchedule) -> None:
        self._refuse_completed(schedule)
        if schedule.status != "paused":
            self._leave(schedule, "paused", None, "schedule_paused")
        self._send_what_waits()

    def resume(self, schedule: PlainSchedule) -> None:
        self._refuse_completed(schedule)
        if schedule.status != "active":
            self._arm(schedule)

    def edit_text(self, schedule: PlainSchedule, text: str) -> None:
        schedule.text = text
        if schedule.status == "needs_attention":
            self._try_to_arm(schedule)

    def edit_times(self, schedule: PlainSchedule, times: Times) -> None:
        if times == schedule.times:
            return
        if schedule.status == "completed" and self._hindrance(schedule, times) is not None:
            raise Refused(self._hindrance(schedule, times) or "")
        if schedule.status == "active":
            self._account(schedule, "schedule_changed")
        self._take_back(schedule, "schedule_changed", by_hand_too=False)
        schedule.times = times
        schedule.edition += 1
        if schedule.status == "active":
            schedule.next = times.after(self.now)
        elif schedule.status == "completed":
            self._arm(schedule)
        elif schedule.status == "needs_attention":
            self._try_to_arm(schedule)
        self._send_what_waits()

    def revoke(self, schedule: PlainSchedule) -> None:
        if schedule.mandate.state == "revoked":
            return
        schedule.mandate.state = "revoked"
        for run in schedule.runs:
            if run.status == "running" and run.stop_code is None:
                run.stop_code = "mandate_revoked"
        if schedule.status == "active":
            self._leave(schedule, "needs_attention", "mandate_revoked", "mandate_revoked")
        else:
            self._take_back(schedule, "mandate_revoked")
        self._send_what_waits()

    def end_mandate_at(self, schedule: PlainSchedule, until: datetime) -> None:
        if schedule.mandate.state == "revoked":
            raise Refused("mandate_is_revoked")
        schedule.mandate.until = until
        self._look_again(schedule)
        self._send_what_waits()

    def lose_sponsor(self, *, how: str) -> None:
        if how == "deactivated":
            self.sponsor_active = False
        else:
            self.sponsor_member = False
        for schedule in self.schedules:
            self._look_again(schedule)
        self._send_what_waits()

    def sponsor_returns(self) -> None:
        self.sponsor_active = self.sponsor_member = True

    def archive(self) -> None:
        if self.archived:
            return
        self.archived = True
        for schedule in self.schedules:
            self._look_again(schedule)
        for schedule in self.schedules:
            self._take_back(schedule, "chat_archived")
        self.messages = 0

    def unarchive(self) -> None:
        self.archived = False

    def say(self) -> None:
        if self.archived:
            raise Refused("chat_archived")
        self.messages += 1

    def run_now(self, schedule: PlainSchedule) -> None:
        self._refuse_completed(schedule)
        if schedule.open_runs:
            raise Refused("previous_run_active")
        code = self.refusal(schedule)
        if code is not None:
            raise Refused(code)
        idle = self.idle and not self._waiting()
        run = PlainRun(self.now, True, "queued", None, schedule.text, schedule.edition)
        schedule.runs.append(run)
        if idle:
            run.status = "delivered"

    # --- What time and the worker do ---

    def tick(self) -> None:
        due = [one for one in self.schedules if one.status == "active" and one.next and one.next <= self.now]
        idle = self.idle and not self._waiting()
        for schedule in sorted(due, key=lambda one: self._due(one)[0]):
            slot, _ = self._due(schedule)
            run = PlainRun(slot, False, "queued", None, schedule.text, schedule.edition)
            schedule.next = schedule.times.after(self.now)
            before = schedule.open_runs
            schedule.runs.append(run)
            if before and isinstance(schedule.times, Hourly):
                run.end("skipped", "previous_run_active")
            elif before:
                continue
            elif (code := self.refusal(schedule)) is not None:
                run.end("failed", code)
                self._after(schedule, run)
            elif idle:
                run.status, idle = "delivered", False
        self._send_what_waits()

    def turn_begins(self) -> str | None:
        """Whose turn is next, if no turn is at work: `person`, whose turn is answered at once, or `schedule`."""
        if self.at_work is not None:
            return None
        if self.messages:
            self.messages -= 1
            self._send_what_waits()
            return "person"
        for schedule in self.schedules:
            for run in schedule.runs:
                if run.status == "delivered":
                    run.status = "running"
                    return "schedule"
        return None

    def turn_ends(self, run: PlainRun, *, well: bool) -> None:
        schedule = self.owner_of(run)
        if run.stop_code is not None:
            run.end("cancelled", run.stop_code)
        elif well:
            run.end("completed", None)
        else:
            run.end("failed", "model_failed")
        self._after(schedule, run)
        self._send_what_waits()

    # --- Consequences ---

    def _refuse_completed(self, schedule: PlainSchedule) -> None:
        if schedule.status == "completed":
            raise Refused("schedule_completed")

    def _mended(self, schedule: PlainSchedule) -> PlainMandate:
        """The mandate as it would be after the sponsor's resume: taken up again, or a new one like the old."""
        old = schedule.mandate
        if old.state == "revoked" or old.expired(self.now):
            until = old.until
            if old.until is not None and old.expired(self.now):
                until = self.now + max(old.until - old.since, DAY)
            return PlainMandate(self.now, until)
        return PlainMandate(old.since, old.until)

    def _hindrance(self, schedule: PlainSchedule, times: Times) -> str | None:
        code = self.refusal(schedule, self._mended(schedule))
        if code is None and times.after(self.now) is None:
            return "schedule_has_no_future_occurrence"
        return code

    def _arm(self, schedule: PlainSchedule) -> None:
        code = self._hindrance(schedule, schedule.times)
        if code is not None:
            raise Refused(code)
        schedule.mandate = self._mended(schedule)
        schedule.status, schedule.reason, schedule.failures = "active", None, 0
        schedule.next = schedule.times.after(self.now)

    def _try_to_arm(self, schedule: PlainSchedule) -> None:
        if self._hindrance(schedule, schedule.times) is None:
            self._arm(schedule)

    def _look_again(self, schedule: PlainSchedule) -> None:
        code = self.refusal(schedule)
        if schedule.status == "active" and code is not None:
            self._stop(schedule, code)

    def _stop(self, schedule: PlainSchedule, code: str) -> None:
        self._leave(schedule, "needs_attention", code, "schedule_stopped")

    def _leave(self, schedule: PlainSchedule, status: str, reason: str | None, code: str) -> None:
        if schedule.status == "active":
            self._account(schedule, code)
        schedule.status, schedule.reason, schedule.next = status, reason, None
        self._take_back(schedule, code)

    def _due(self, schedule: PlainSchedule) -> tuple[datetime, int]:
        """The newest due slot, and how many are due."""
        slot, count = schedule.next, 0
        assert slot is not None
        newest = slot
        while slot is not None and slot <= self.now:
            newest, count = slot, count + 1
            slot = schedule.times.after(slot)
        return newest, count

    def _account(self, schedule: PlainSchedule, code: str) -> None:
        """What was due and nobody has claimed is written down as one skipped run."""
        if schedule.next is not None and schedule.next <= self.now:
            slot, _ = self._due(schedule)
            schedule.runs.append(PlainRun(slot, False, "skipped", code, schedule.text, schedule.edition))

    def _take_back(self, schedule: PlainSchedule, code: str, *, by_hand_too: bool = True) -> None:
        for run in schedule.runs:
            if run.status in ("queued", "delivered") and (by_hand_too or not run.by_hand):
                run.end("cancelled", code)

    def _waiting(self) -> list[PlainRun]:
        found = [run for one in self.schedules for run in one.runs if run.status == "queued"]
        return sorted(found, key=lambda run: (run.slot, run.number))

    def _send_what_waits(self) -> None:
        """An idle chat takes what has waited longest, with the words as they now are, if it still may.

        Called when all that one event means has happened.
        """
        while self.idle and self._waiting():
            run = self._waiting()[0]
            schedule = self.owner_of(run)
            code = self.refusal(schedule)
            if code is None:
                run.status, run.text = "delivered", schedule.text
                return
            run.end("failed", code)
            self._after(schedule, run)

    def _after(self, schedule: PlainSchedule, run: PlainRun) -> None:
        """What the end of a run means for its schedule. A run by hand means nothing but its own end."""
        no_authority = run.status == "failed" and run.code != "model_failed"
        if run.by_hand:
            if no_authority and schedule.status == "active":
                self._stop(schedule, run.code or "")
            return
        stale = (run.text, run.edition) != (schedule.text, schedule.edition)
        if run.status == "completed" and not stale:
            schedule.failures = 0
        elif run.status == "failed" and not stale:
            schedule.failures += 1
        too_often = schedule.failures >= 1
        withdrawn = run.code in ("mandate_revoked", "schedule_paused", "schedule_stopped", "schedule_changed")
        ends_it = isinstance(schedule.times, Once) and run.edition == schedule.edition
        if ends_it and not (withdrawn and run.status != "failed"):
            if no_authority or too_often:
                if schedule.status != "needs_attention":
                    reason = run.code if no_authority else "failure_threshold_reached"
                    schedule.status, schedule.reason, schedule.next = "needs_attention", reason, None
            else:
                schedule.status, schedule.reason, schedule.next = "completed", run.code, None
                if schedule.mandate.state == "active":
                    schedule.mandate.state = "paused"
        elif schedule.status == "active":
            if no_authority:
                self._stop(schedule, run.code or "")
            elif too_often:
                self._stop(schedule, "failure_threshold_reached")
