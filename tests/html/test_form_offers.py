"""What the form says about a timetable that may not mean what it looks like, and the buttons that mend it."""

from __future__ import annotations

import pytest

from tests.html.browsing import House, forms_of
from tests.html.test_schedule_forms import WHAT, api, edit_address, made
from tests.support.databases import START as NOW
from webapp.html.form_offers import Offer, offers
from webapp.html.forms.schedule import Values, blank_values


def said(zone: str = "Europe/Berlin", *, saved_kind: str | None = None, **typed: object) -> list[Offer]:
    values: Values = blank_values(zone) | typed
    return list(offers(values, saved_kind=saved_kind, now=NOW))


@pytest.mark.parametrize(
    ("cron", "words", "takes"),
    [
        (
            "*/90 * * * *",
            "*/90 in the minute field is not every 90 minutes",
            {"type": "interval", "every": "90", "every_unit": "minutes", "anchor_at": "2026-11-30T10:00"},
        ),
        (
            "*/45 * * * *",
            "it runs at :00 and :45.",
            {"type": "interval", "every": "45", "every_unit": "minutes", "anchor_at": "2026-11-30T10:00"},
        ),
        ("*/7 * * * *", "it runs at :00, :07, … and :56.", None),
        ("*/45 9-17 * * 1-5", "Within chosen hours or days no interval can say it.", {}),
        (
            "30 */5 * * *",
            "it runs at 00 h, 05 h, 10 h, 15 h and 20 h.",
            {"type": "interval", "every": "5", "every_unit": "hours", "anchor_at": "2026-11-30T09:30"},
        ),
        (
            "0 6 */2 * *",
            "starts again on the 1st of each month",
            {"type": "interval", "every": "2", "every_unit": "days", "anchor_at": "2026-12-01T06:00"},
        ),
        ("0 6 1 */5 *", "it means Jan, Jun and Nov.", {}),
        ("0 6 * * */2", "it means Sun, Tue, Thu and Sat.", {}),
        ("0 6 1 * mon", "either one counts", {}),
        ("0 6 */2 * 1", "then both must match", {}),
        ("* 9 * * *", "60 runs in every hour", {"cron": "0 9 * * *"}),
        ("0 30 2 * * 2", "6 fields", {"cron": "30 2 * * 2"}),
        (
            "0 30 2 * * 2 2027",
            "7 fields: some programs begin with seconds and a year",
            {"cron": "30 2 * * 2"},
        ),
        (
            "@every 1h30m",
            "@every is an interval",
            {"type": "interval", "every": "90", "every_unit": "minutes", "anchor_at": "2026-11-30T10:00"},
        ),
        (
            "CRON_TZ=America/New_York 0 9 * * *",
            "time zone of its own",
            {"cron": "0 9 * * *", "timezone": "America/New_York"},
        ),
    ],
)
def test_a_cron_that_means_something_else_is_told_and_mended(
    cron: str, words: str, takes: dict[str, str] | None
) -> None:
    found = next(offer for offer in said(type="cron", cron=cron) if words in offer.says)
    assert bool(found.label) == bool(found.values)
    if takes is not None:
        assert found.values == takes


@pytest.mark.parametrize(
    "cron",
    ["*/15 * * * *", "0 */6 * * *", "0 9 * * 1-5", "30 2 1 * *", "@hourly", "*/60 * * * *", "nonsense", ""],
)
def test_a_plain_cron_is_left_alone(cron: str) -> None:
    assert [offer.key for offer in said(type="cron", cron=cron, time="")] == []


def test_another_kind_is_offered_what_maps_and_told_what_does_not() -> None:
    weekly = {"time": "02:30", "weekdays": ["0", "2", "4"]}
    found = {offer.key: offer for offer in said(type="cron", **weekly)}
    assert found["as-cron"].values == {"cron": "30 2 * * 0,2,4"}
    assert found["left"].says == (
        "Not part of a cron expression: the time 02:30 and the weekdays Tue, Thu and Sun. Kept here until you save."
    )
    assert said(type="once", **weekly)[0].values == {"run_at": "2026-12-01T02:30"}
    assert said(type="weekly", cron="15 4 * * 1-5")[0].values == {
        "type": "weekly",
        "time": "04:15",
        "weekdays": ["1", "2", "3", "4", "5"],
    }
    assert said(type="interval", cron="*/20 * * * *")[0].values["every"] == "20"
    assert said(type="daily", cron="15 4 * * 1-5")[-1].key == "left", "a daily timetable cannot say it"
    assert said(type="interval", saved_kind="daily")[0].says.startswith(
        "Not part of an interval: the time 09:00."
    )
    assert said(type="interval") == [], "nobody typed the usual time"


def test_an_offer_is_taken_up_by_a_plain_form(house: House) -> None:
    browser = house.alice
    form = browser.get("/schedules/new")
    node = {"target_node_id": house.stage.node.node_id}
    page = browser.press(form, "/schedules/new", **WHAT, **node, type="cron", cron="*/90 * * * *")
    assert browser.status == 422
    assert "Every 90 minutes, as an interval" in page
    page = browser.press(page, "/schedules/new", take="minutes")
    assert browser.status == 200
    (found,) = [each for each in forms_of(page) if each.action == "/schedules/new"]
    assert (found.values["type"], found.values["every"], found.values["every_unit"]) == (
        "interval",
        "90",
        "minutes",
    )
    assert "autofocus" in page
    browser.press(page, "/schedules/new")
    schedule_id = browser.path.rpartition("/")[2]
    assert api(house, "GET", f"/{schedule_id}")["schedule"]["every_seconds"] == 5400
    schedule = made(house, name="Sweep")
    page = browser.press(
        browser.get(edit_address(schedule)), edit_address(schedule), type="cron", take="as-cron"
    )
    assert browser.status == 200
    assert "Take " not in page, "it was taken"
    page = browser.press(page, edit_address(schedule), take="of another page")
    assert browser.status == 200
    assert "If the worker was down" in page
    assert "stands for 2 older slots" in page
