"""What the form says about policies: the engine's own decisions, told with the schedule's own times."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.html.browsing import House
from tests.support.databases import START as NOW
from webapp.html.policy_story import Example, Order, examples, pictures
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, RunStatus
from webapp.scheduling.queries import plan_for
from webapp.timetable import Plan, parse_timetable

HOURLY: dict[str, object] = {"type": "cron", "cron": "0 * * * *"}
KINDS: list[dict[str, object]] = [
    HOURLY,
    {"type": "daily", "time": "02:30"},
    {"type": "weekly", "time": "02:30", "weekdays": [0, 2, 4]},
    {"type": "interval", "every_seconds": 60, "anchor_at": "2026-11-30T08:12:07Z"},
    {"type": "interval", "every_seconds": 31_536_000},
    {"type": "cron", "cron": "0 0 29 2 *"},
    {"type": "once", "run_at": "2026-12-04T11:00"},
]


def order(spec: dict[str, object], **more: object) -> Order:
    usual = {
        "zone": "Europe/Berlin",
        "misfire": MisfirePolicy.CATCH_UP_ONCE,
        "overlap": OverlapPolicy.SKIP,
        "grace": timedelta(seconds=60),
        "catch_up_limit": 100,
        "runs_left": None,
        "doer": "atlas",
        "in_chat": False,
        "now": NOW,
    }
    return Order(Plan(parse_timetable(spec, "Europe/Berlin", now=NOW)), **{**usual, **more})  # type: ignore[arg-type]


def told(spec: dict[str, object], **more: object) -> tuple[Example, Example]:
    outage, work = examples(order(spec, **more))
    return outage, work


@pytest.mark.parametrize(
    ("more", "outcome", "code"),
    [
        ({}, "One run at 12:30, for the slot of 12:00. It says that it stands for 2 older slots.", None),
        (
            {"misfire": MisfirePolicy.SKIP},
            "Nothing runs late: one skipped run records all that was missed. Next: 13:00.",
            "misfire_skipped",
        ),
        (
            {"misfire": MisfirePolicy.SKIP, "grace": timedelta(hours=1)},
            "One run at 12:30, for the slot of 12:00, which is still on time."
            " One skipped run records the 2 older slots.",
            "misfire_skipped",
        ),
        (
            {"misfire": MisfirePolicy.CATCH_UP_ALL},
            "3 runs from 12:30 on, oldest first, each after the one before has ended.",
            None,
        ),
        (
            {"misfire": MisfirePolicy.CATCH_UP_ALL, "catch_up_limit": 2},
            "2 runs from 12:30 on, oldest first, each after the one before has ended."
            " One skipped run records the older slot.",
            "misfire_skipped",
        ),
    ],
)
def test_an_outage_is_told_with_the_slots_that_fall_into_it(
    more: dict[str, object], outcome: str, code: str | None
) -> None:
    outage, _ = told(HOURLY, **more)
    assert outage.setting == "Down from Mon 30 Nov 09:30 to 12:30. 3 slots fall into it."
    assert (outage.outcome, outage.code) == (outcome, code)


@pytest.mark.parametrize(
    ("overlap", "outcome", "code"),
    [
        ("skip", "The slot of 11:00 is recorded as skipped", "previous_run_active"),
        ("queue_one", "If 12:00 comes first, that one takes its place.", "superseded"),
        ("allow", "atlas gets the task of 11:00 as well, and has both at once.", None),
    ],
)
def test_a_long_run_is_told_with_the_slots_that_it_meets(
    overlap: str, outcome: str, code: str | None
) -> None:
    _, work = told(HOURLY, overlap=OverlapPolicy(overlap))
    assert work.setting == "The run of Mon 30 Nov 10:00 is still at work when 11:00 comes."
    assert outcome in work.outcome
    assert work.code == code
    assert ("gives way after 6 h" in work.outcome) == (overlap != "allow")
    _, alone = told({"type": "once", "run_at": "2026-12-04T11:00"}, overlap=OverlapPolicy(overlap))
    assert ("waits" in alone.outcome) == (overlap != "allow"), "a once is never skipped for an earlier run"


def test_a_last_run_has_nothing_after_it() -> None:
    outage, work = told(HOURLY, runs_left=1, misfire=MisfirePolicy.CATCH_UP_ALL)
    assert outage.outcome.startswith("One run at 12:30")
    assert [kind for _, kind in outage.picture.pins].count("run") == 1
    assert work.setting.startswith("A run by hand")
    gone = Plan(parse_timetable(HOURLY, "UTC", now=NOW), ends_at=NOW)
    assert (
        examples(
            Order(gone, "UTC", MisfirePolicy.SKIP, OverlapPolicy.SKIP, timedelta(), 1, None, "", False, NOW)
        )
        == ()
    )


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: str(spec.get("cron") or spec["type"]))
def test_each_kind_under_each_policy_is_told_and_drawn_within_its_line(spec: dict[str, object]) -> None:
    for misfire in MisfirePolicy:
        for overlap in OverlapPolicy:
            for example in told(spec, misfire=misfire, overlap=overlap):
                assert example.outcome.endswith(".")
                places = [x for x, _ in example.picture.pins]
                places += [edge for x, width, _ in example.picture.bars for edge in (x, x + width)]
                assert all(0 <= place <= 100 for place in places), (example, places)


def test_every_choice_of_the_form_has_a_picture() -> None:
    wanted = {f"misfire-{each.value}" for each in MisfirePolicy} | {
        f"overlap-{each.value}" for each in OverlapPolicy
    }
    assert set(pictures()) == wanted
    assert len(set(pictures().values())) == len(wanted), "no two policies look the same"


def test_the_engine_does_what_the_example_says(house: House) -> None:
    with house.backstage() as stage:
        made = {
            misfire: stage.create(
                name=misfire.value, schedule=HOURLY, timezone="Europe/Berlin", misfire_policy=misfire.value
            )
            for misfire in MisfirePolicy
        }
        stage.clock.set(stage.at(11, 30))
        stage.tick()
        found = {misfire: stage.runs(schedule) for misfire, schedule in made.items()}
        assert plan_for(made[MisfirePolicy.SKIP]) == order(HOURLY).plan
    once = found[MisfirePolicy.CATCH_UP_ONCE]
    assert [(run.scheduled_for.hour, run.missed_count, run.status) for run in once] == [
        (11, 2, RunStatus.QUEUED)
    ]
    skip = found[MisfirePolicy.SKIP]
    assert [(run.scheduled_for.hour, run.missed_count, run.error_code) for run in skip] == [
        (11, 2, "misfire_skipped")
    ]
    assert [run.scheduled_for.hour for run in found[MisfirePolicy.CATCH_UP_ALL]] == [9, 10, 11]
