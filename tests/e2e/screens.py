"""The pictures in docs/screens/, of a network with something of everything. Only `make screens` runs it."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from sqlalchemy import select

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.schedules import ScheduleForm
from tests.support.browser import shoot, with_script_only
from webapp import demo
from webapp.chat.models import Approval, Chat
from webapp.identity import queries
from webapp.mandates.models import Mandate
from webapp.nodes import operations as nodes
from webapp.nodes.lifecycle import NodeStatus, TaskStatus
from webapp.nodes.models import Node
from webapp.scheduling import operations as schedules
from webapp.scheduling.fields import NewSchedule
from webapp.store import reading
from webapp.targets import node as node_calls

pytestmark = with_script_only

_AT_TWO = (
    "Rotate the logs",
    "Weigh the archive",
    "Renew the index",
    "Compare the mirrors",
    "Empty the drop box",
    "Count the licences",
    "Sum up the sensors",
)


def test_the_main_pages(site: Site, page: Page) -> None:
    made = scene.furnish(site)
    more = _furnish_more(site)
    scene.remember_a_year(site, made.schedule)
    door.sign_in(page, made.owner, made.password)
    for name, address in (
        ("overview", "/"),
        ("schedules", "/schedules"),
        ("schedule", made.schedule),
        ("run", made.run),
        ("nodes", "/nodes"),
        ("node", made.node),
        ("chat", more["chat"]),
        ("approvals", "/approvals"),
        ("mandates", "/mandates"),
        ("mandate", more["mandate"]),
        ("audit", "/audit"),
    ):
        page.goto(address)
        expect(page.locator("#foot")).to_contain_text("Live")
        shoot(page, name)
    _shoot_the_form(page)
    _shoot_a_conflict(page, more["briefing"])


def _shoot_the_form(page: Page) -> None:
    form = ScheduleForm(page, script=True).open_new()
    form.fill(
        name="Weekly review", node="atlas", task="Say what was done, what waits, and what surprised you."
    )
    form.choose_kind("Weekly")
    form.choose_days("Monday", "Thursday")
    form.choose_time("02:30")
    form.choose_zone("Berlin", "Europe/Berlin")
    expect(form.preview).to_contain_text("Mondays and Thursdays at 02:30, Europe/Berlin")
    page.evaluate("scrollTo(0, 0)")
    shoot(page, "form")


def _shoot_a_conflict(page: Page, address: str) -> None:
    page.goto(f"{address}/edit")
    page.get_by_label("Name").fill("Morning briefing, short")
    other = page.context.new_page()
    other.goto(f"{address}/edit")
    other.get_by_label("Name").fill("Briefing of the day")
    other.locator("#time").fill("08:30")
    ScheduleForm(other, script=True).save()
    expect(other.get_by_role("heading", name="Briefing of the day", level=1)).to_be_visible()
    other.close()
    ScheduleForm(page, script=True).save()
    expect(page.get_by_text("Briefing of the day").first).to_be_visible()
    shoot(page, "conflict")


def _furnish_more(site: Site) -> dict[str, str]:
    """A herd at two, a node that fails, one that is silent while work waits; the addresses of what is drawn."""
    with scene.product(site):
        now = site.clock.now()
        with reading() as session:
            user = queries.user_by_name(session, demo.OWNER)
            person = queries.person_of(session, user_pk=user.id) if user else None
        assert person is not None
        actor, network_pk = person.actor, person.places[0].network_pk
        hermes, _ = nodes.create_node(actor, network_pk, "hermes", now=now)
        with reading() as session:
            ids = dict(session.execute(select(Node.alias, Node.node_id)).all())
            pks = dict(session.execute(select(Node.alias, Node.id)).all())
        for place, name in enumerate(_AT_TWO):
            new = NewSchedule(
                name=name,
                task=f"{name}, and say what you found.",
                target_node_id=ids[("atlas", "hermes", "quill")[place % 3]],
                schedule={"type": "daily", "time": "02:00"},
                timezone="Europe/Berlin",
            )
            schedules.create(actor, network_pk, lambda new=new: new, now=now)
        frail = NewSchedule(
            name="Invoice match",
            task="Match what was paid with what was billed.",
            target_node_id=hermes.node_id,
            schedule={"type": "interval", "every_seconds": 60},
            failure_threshold=2,
        )
        schedules.create(actor, network_pk, lambda: frail, now=now)
        frail_pk = scene.schedule_named("Invoice match")
        for _ in range(3):
            scene.ring(site, frail_pk)
            scene.answer(site, pks["hermes"], TaskStatus.FAILED, "The bank's door is closed.")
            scene.answer(site, pks["atlas"], TaskStatus.REPLIED, "13 words")
        for alias in ("atlas", "hermes"):
            node_calls.heartbeat(pks[alias], NodeStatus.IDLE, None, now=site.clock.now())
        with reading() as session:
            chat = session.scalars(select(Chat.chat_id)).first()
            mandate = session.scalars(
                select(Mandate.mandate_id).where(Mandate.expires_at.is_not(None))
            ).first()
            assert session.scalars(select(Approval.id)).first() is not None
        briefing = scene.public_id(scene.schedule_named("Morning briefing"))
    return {
        "chat": f"/chats/{chat}",
        "mandate": f"/mandates/{mandate}",
        "briefing": f"/schedules/{briefing}",
    }
