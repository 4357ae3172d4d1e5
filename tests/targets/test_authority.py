"""Each fault of authority at a chat: the state, the code, no turn, an entry in the audit, a card; and what mends it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.factories import make_member
from tests.scheduling.stage import code_of
from tests.targets.parlour import Parlour
from webapp.chat.lifecycle import FINAL_TURN
from webapp.chat.models import Chat
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity.models import Role
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store.transaction import Tx, operation

Break = Callable[[Parlour, Schedule], None]


# --- How it breaks ---


def _deactivate(parlour: Parlour, _schedule: Schedule) -> None:
    people.deactivate_user(None, parlour.cast.bob.user_id, now=parlour.clock.now())


def _remove(parlour: Parlour, _schedule: Schedule) -> None:
    people.remove_member(
        parlour.alice, parlour.cast.network.network_id, parlour.cast.bob.user_id, now=parlour.clock.now()
    )


def _revoke(parlour: Parlour, schedule: Schedule) -> None:
    parlour.revoke(schedule)


def _archive(parlour: Parlour, _schedule: Schedule) -> None:
    parlour.archive()


def _expire(parlour: Parlour, schedule: Schedule) -> None:
    parlour.expire_mandate(schedule, parlour.clock.now() + timedelta(minutes=30))


@operation
def _give_away(tx: Tx, chat_pk: int, owner_pk: int) -> None:
    tx.session.get_one(Chat, chat_pk).owner_pk = owner_pk


@operation
def _write(tx: Tx, mandate_pk: int, values: dict[str, Any]) -> None:
    mandate = tx.session.get_one(Mandate, mandate_pk)
    for field, value in values.items():
        setattr(mandate, field, value)


def _lose_chat(parlour: Parlour, _schedule: Schedule) -> None:
    _give_away(parlour.chat.id, parlour.cast.alice.id)


def _unconfirm(parlour: Parlour, schedule: Schedule) -> None:
    _write(parlour.mandate(schedule).id, {"confirmed_at": None, "confirmed_by_pk": None})


def _change_unnoticed(parlour: Parlour, schedule: Schedule) -> None:
    _write(parlour.mandate(schedule).id, {"revision": 7})


def _exhaust(parlour: Parlour, schedule: Schedule) -> None:
    _write(parlour.mandate(schedule).id, {"max_runs": 3, "used_runs": 3})


@operation
def _forget_mandate(tx: Tx, schedule_pk: int) -> None:
    """As a schedule would be whose mandate was never made."""
    schedule = tx.session.get_one(Schedule, schedule_pk)
    tx.session.get_one(Mandate, schedule.mandate_pk).state = MandateState.REVOKED
    schedule.mandate_pk = schedule.mandate_id = schedule.mandate_revision = None


def _lose_mandate(_parlour: Parlour, schedule: Schedule) -> None:
    _forget_mandate(schedule.id)


AT_ONCE: list[tuple[str, Break]] = [
    ("sponsor_inactive", _deactivate),
    ("sponsor_not_permitted", _remove),
    ("mandate_revoked", _revoke),
    ("chat_archived", _archive),
]
AT_THE_SLOT: list[tuple[str, Break]] = [
    ("mandate_expired", _expire),
    ("chat_not_owned", _lose_chat),
    ("mandate_unconfirmed", _unconfirm),
    ("mandate_changed", _change_unnoticed),
    ("mandate_exhausted", _exhaust),
    ("mandate_missing", _lose_mandate),
]


def _assert_stopped(parlour: Parlour, schedule: Schedule, code: str) -> None:
    saved = parlour.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.NEEDS_ATTENTION, code)
    assert saved.due.next_run_at is None
    assert ("needs_attention", schedule.schedule_id, code) in parlour.open_alerts()
    assert "schedule.needs_attention" in parlour.audited(schedule.schedule_id)


@pytest.mark.parametrize(("code", "breaks"), AT_ONCE, ids=[code for code, _ in AT_ONCE])
def test_what_people_do_stops_it_in_the_same_moment(parlour: Parlour, code: str, breaks: Break) -> None:
    schedule = parlour.prompt()
    breaks(parlour, schedule)
    _assert_stopped(parlour, schedule, code)
    parlour.tick(hours=2)
    assert (parlour.runs(schedule), parlour.turns()) == ([], [])


@pytest.mark.parametrize(("code", "breaks"), AT_ONCE, ids=[code for code, _ in AT_ONCE])
def test_it_takes_back_what_waits_for_the_chat(parlour: Parlour, code: str, breaks: Break) -> None:
    schedule = parlour.prompt()
    parlour.say()
    parlour.tick(minutes=48)
    breaks(parlour, schedule)
    _assert_stopped(parlour, schedule, code)
    withdrawn_as = code if code == "mandate_revoked" else "schedule_stopped"
    assert parlour.told(schedule) == [("09:00", "cancelled", withdrawn_as)]
    assert [turn.by_person for turn in parlour.turns()] == [True]


@pytest.mark.parametrize(("code", "breaks"), AT_THE_SLOT, ids=[code for code, _ in AT_THE_SLOT])
def test_what_is_found_at_a_slot_fails_that_run_and_stops_it(
    parlour: Parlour, code: str, breaks: Break
) -> None:
    schedule = parlour.prompt()
    breaks(parlour, schedule)
    parlour.tick(minutes=48)
    assert parlour.told(schedule) == [("09:00", "failed", code)]
    assert parlour.turns() == []
    _assert_stopped(parlour, schedule, code)
    _mend_what_was_written_around_the_product(parlour, schedule, code)


@pytest.mark.parametrize(("code", "breaks"), AT_THE_SLOT, ids=[code for code, _ in AT_THE_SLOT])
def test_what_is_found_at_late_delivery_fails_that_run_and_stops_it(
    parlour: Parlour, code: str, breaks: Break
) -> None:
    schedule = parlour.prompt()
    turn = parlour.say()
    parlour.tick(minutes=48)
    breaks(parlour, schedule)
    parlour.clock.advance(minutes=31)
    parlour.abort(turn) if code != "chat_not_owned" else parlour.talk(1)
    assert parlour.told(schedule) == [("09:00", "failed", code)]
    assert [turn.by_person for turn in parlour.turns()] == [True]
    _assert_stopped(parlour, schedule, code)
    _mend_what_was_written_around_the_product(parlour, schedule, code)


def _mend_what_was_written_around_the_product(parlour: Parlour, schedule: Schedule, code: str) -> None:
    """The doctor comes last, and would object to what no operation could have left behind."""
    if code == "chat_not_owned":
        _give_away(parlour.chat.id, parlour.cast.bob.id)
    if code in ("mandate_missing", "mandate_changed", "mandate_unconfirmed"):
        parlour.resume(schedule, parlour.bob)
        assert parlour.schedule(schedule).status is ScheduleStatus.ACTIVE


def test_a_run_by_hand_is_refused_with_the_code_and_audited(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.archive()
    with pytest.raises(AppError) as refused:
        parlour.run_now(schedule, parlour.bob)
    assert code_of(refused.value) == ("chat_archived", 409)
    assert "schedule.run_now_refused" in parlour.audited(schedule.schedule_id)
    assert parlour.runs(schedule) == []


def test_a_paused_mandate_pauses_the_schedule(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.say()
    parlour.tick(minutes=48)
    parlour.pause_mandate(schedule)
    saved = parlour.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.PAUSED, "mandate_paused")
    assert parlour.told(schedule) == [("09:00", "cancelled", "mandate_paused")]
    parlour.resume(schedule, parlour.bob)
    assert parlour.mandate(schedule).state is MandateState.ACTIVE
    assert parlour.schedule(schedule).status is ScheduleStatus.ACTIVE


@pytest.mark.parametrize("breaks", [_revoke, _expire], ids=["revoked", "expired"])
def test_the_sponsor_mends_by_resuming_and_an_admin_may_not(parlour: Parlour, breaks: Break) -> None:
    schedule = parlour.prompt()
    old = parlour.mandate(schedule)
    breaks(parlour, schedule)
    parlour.tick(minutes=48)
    assert parlour.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    with pytest.raises(AppError) as refused:
        parlour.resume(schedule, parlour.alice)
    assert code_of(refused.value) == ("permission_denied", 403)
    parlour.resume(schedule, parlour.bob)
    new = parlour.mandate(schedule)
    assert (new.id != old.id, new.policy, new.state) == (True, old.policy, MandateState.ACTIVE)
    parlour.run_now(schedule, parlour.bob)
    assert parlour.turns()[-1].mandate_pk == new.id


def test_an_archived_chat_has_to_be_taken_up_again_first(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.archive()
    with pytest.raises(AppError) as refused:
        parlour.resume(schedule, parlour.bob)
    assert code_of(refused.value) == ("chat_archived", 409)
    parlour.unarchive()
    assert parlour.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    parlour.resume(schedule, parlour.bob)
    assert parlour.schedule(schedule).status is ScheduleStatus.ACTIVE


def test_who_comes_back_resumes_by_hand(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    _remove(parlour, schedule)
    make_member(parlour.cast.bob, parlour.cast.network, Role.MEMBER)
    assert parlour.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    parlour.resume(schedule, parlour.bob)
    parlour.tick(minutes=48)
    assert parlour.talk() == 1


def test_a_turn_at_work_ends_after_its_chat_is_archived(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    parlour.archive()
    parlour.answer(hold)
    (turn,) = parlour.turns()
    assert turn.status in FINAL_TURN
    _assert_stopped(parlour, schedule, "chat_archived")


def test_archiving_takes_back_a_run_by_hand_of_a_schedule_that_is_paused(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.pause(schedule, parlour.bob)
    parlour.run_now(schedule, parlour.bob)
    parlour.archive()
    assert [(run.status.value, run.error_code) for run in parlour.runs(schedule)] == [
        ("cancelled", "chat_archived")
    ]
    assert parlour.take() is None
    assert parlour.schedule(schedule).status is ScheduleStatus.PAUSED
