"""Every page in every state that it is looked at in: one list, and nothing beside it.

A page of the URL map that is missing here fails `test_every_view.py`. The first view of a page is looked at in each
CI, the others in `make proof-long`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page, expect

from tests.e2e.house import MEMBER, STRANGER, VIEWER
from tests.e2e.pages.schedules import ScheduleForm
from webapp import demo

OWNER: Final = demo.OWNER
NOBODY: Final = ""
Deed = Callable[[Page], None]

# GET addresses that show no page of their own, and what they do instead.
NO_PAGE: Final = {
    "overview_pages.resume_all": "leads to the preview of a bulk call",
    "shell.frame": "a region for open pages",
    "asset": "style sheet, script and pictures",
    "static": "the same",
}


@dataclass(frozen=True)
class View:
    """A page in a state: `page` is its endpoint, `address` may name places of the house, `deed` brings it about.

    `who` looks; `hostile`: whether words of others stand on it, so that the text itself must be seen.
    """

    page: str
    state: str
    address: str
    who: str = OWNER
    deed: Deed | None = None
    hostile: bool = False


def pressed(button: str, **fields: str) -> Deed:
    """Fill fields by their labels, press a button of the middle of the page, and wait for what it says."""

    def do(page: Page) -> None:
        main = page.locator("#main")
        for label, value in fields.items():
            main.get_by_label(label.replace("_", " ")).first.fill(value)
        main.get_by_role("button", name=button).first.click()
        expect(main.get_by_role("alert").first).to_be_visible()

    return do


def refused_form(page: Page) -> None:
    """The form of a schedule, sent with no weekday and no name."""
    form = ScheduleForm(page, script=True)
    form.choose_kind("Weekly")
    form.choose_days()
    form.save()
    expect(page.get_by_role("alert")).to_contain_text("to mend before this can be saved")


def kind(name: str) -> Deed:
    """The form of a schedule as it stands for one kind."""

    def do(page: Page) -> None:
        ScheduleForm(page, script=True).choose_kind(name)
        expect(page.get_by_role("radio", name=name, exact=True)).to_be_checked()

    return do


def offers(page: Page) -> None:
    """A cron that means something else is told, with a button that mends it; the policies tell it too."""
    form = ScheduleForm(page, script=True)
    form.choose_kind("Cron")
    page.get_by_label("Cron expression").fill("*/45 * * * *")
    expect(form.preview).to_contain_text("it runs at :00 and :45.")


def opened(page: Page) -> None:
    """Unfold everything that is folded."""
    page.locator("details").evaluate_all("(all) => all.forEach((each) => { each.open = true; })")


def refused_account(page: Page) -> None:
    """A form that is folded away, and comes back open."""
    opened(page)
    pressed("Create the account")(page)


def skipped_next(page: Page) -> None:
    """The next slot is skipped by a person; the page offers to undo it."""
    undo = page.get_by_role("button", name="Undo the skip")
    if not undo.is_visible():
        page.get_by_role("button", name="Skip this one").click()
    expect(undo).to_be_visible()


def keys_dialog(page: Page) -> None:
    """The dialog of the keys."""
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def cut_off(page: Page) -> None:
    """The line to the server is dead, and the page says so."""
    expect(page.locator("#foot")).to_contain_text("Live")
    page.context.set_offline(True)
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('htmx:sse:close', { detail: { reason: 'ended' } }))"
    )
    expect(page.locator("#cut").get_by_text("Cut off")).to_be_visible()


def conflict(page: Page) -> None:
    """Somebody else saves the schedule while it is edited."""
    form = ScheduleForm(page, script=True)
    page.get_by_label("Name").fill("Briefing, short")
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_label("Name").fill("Briefing of the day")
    # A name that was saved already would be no change.
    other.get_by_label("What to do").fill(f"Read the mail of {other.evaluate('Date.now()')}.")
    ScheduleForm(other, script=True).save()
    expect(other.locator("#schedule-now")).to_be_visible()
    other.close()
    form.save()
    expect(page.get_by_role("heading", name="saved this while you were typing")).to_be_visible()


def kept_form(page: Page) -> None:
    """The session has ended while somebody typed: the door says that nothing is lost."""
    cookies = page.context.cookies()
    page.context.clear_cookies()
    page.get_by_label("Name").fill("Typed too late")
    page.get_by_role("button", name="Create schedule").click()
    expect(page.get_by_text("Nothing you typed is lost")).to_be_visible()
    page.context.add_cookies(cookies)  # type: ignore[arg-type]


def forged(page: Page) -> None:
    """A form without its mark against forgery."""
    page.locator("#main input[name=csrf_token]").first.evaluate("each => { each.value = 'x'; }")
    page.locator("#main form[method=post]:not([hx-post])").first.evaluate("form => form.submit()")
    expect(page.get_by_text("Error 400")).to_be_visible()


def too_large(page: Page) -> None:
    """More text than a request may have."""
    page.evaluate(
        """() => { const form = document.querySelector("#composer");
            form.querySelector("textarea").value = "x".repeat(300000); form.submit(); }"""
    )
    expect(page.get_by_text("Error 413")).to_be_visible()


def too_late(page: Page) -> None:
    """A button of a page that is older than what it is about."""
    page.evaluate(
        """() => { const form = document.querySelector("#main form[action$='/cancel']");
            form.action = form.action.replace("/cancel", "/confirm"); form.submit(); }"""
    )
    expect(page.locator("#main").get_by_text("409").or_(page.get_by_role("alert")).first).to_be_visible()


def too_often(page: Page) -> None:
    """So many wrong passwords that the door asks to wait."""
    for _ in range(12):
        page.get_by_label("Name").fill("Mallory")
        page.get_by_label("Password").fill("not the password")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_load_state()
        if page.get_by_text("Try again in").count():
            return
    raise AssertionError("nobody was asked to wait")


# Before anybody exists, in this order: each leads to the next.
FIRST_START: Final = (
    View("session.sign_in_page", "before anybody exists", "/sign-in", NOBODY),
    View("session.set_up_page", "the first start", "{set_up}", NOBODY),
    View("session.set_up_page", "refused", "{set_up}", NOBODY, pressed("Create and sign in")),
)
EMPTY: Final = tuple(
    View(page, "empty", address)
    for page, address in (
        ("overview_pages.overview", "/"),
        ("schedule_pages.list_schedules", "/schedules"),
        ("run_pages.list_runs", "/runs"),
        ("node_pages.list_nodes", "/nodes"),
        ("chat_pages.list_chats", "/chats"),
        ("mandate_pages.list_mandates", "/mandates"),
        ("approval_pages.list_approvals", "/approvals"),
        ("schedule_forms.new_schedule", "/schedules/new"),
    )
)
FURNISHED: Final = (
    View("overview_pages.overview", "at work", "/", hostile=True),
    View("overview_pages.overview", "of a viewer", "/", VIEWER),
    View("overview_pages.overview", "of no network", "/", STRANGER),
    View("overview_pages.overview", "unfolded", "/", deed=opened),
    View("overview_pages.overview", "cut off", "/", deed=cut_off),
    View("schedule_pages.list_schedules", "unfolded", "/schedules?sort=name", deed=opened),
    View("schedule_pages.list_schedules", "filtered", "/schedules?status=paused&q=watch"),
    View("schedule_pages.list_schedules", "filtered to nothing", "/schedules?q=nothing-like-it"),
    View("schedule_pages.list_schedules", "of a viewer", "/schedules", VIEWER),
    View("schedule_pages.show_schedule", "at work", "{schedule}", deed=opened),
    View("schedule_pages.show_schedule", "paused", "{paused}"),
    View("schedule_pages.show_schedule", "needs attention", "{broken}", hostile=True),
    View("schedule_pages.show_schedule", "its node takes no work", "{held_up}"),
    View("schedule_pages.show_schedule", "proposed", "{proposed}", hostile=True),
    View("schedule_pages.show_schedule", "of a chat", "{chat_schedule}", hostile=True),
    View("schedule_pages.show_schedule", "of a viewer", "{schedule}", VIEWER),
    View("schedule_pages.show_schedule", "history filtered to nothing", "{schedule}?status=cancelled"),
    View("schedule_pages.show_schedule", "next one skipped", "{briefing}", deed=skipped_next),
    View("schedule_pages.ask_pause", "", "{schedule}/pause"),
    View(
        "schedule_pages.ask_pause",
        "refused",
        "{schedule}/pause",
        deed=pressed("Pause", Resume="2020-01-01T00:00"),
    ),
    View("schedule_pages.ask_resume", "", "{paused}/resume"),
    View("schedule_pages.ask_resume", "needs more than a resume", "{broken}/resume"),
    View("schedule_pages.ask_cancel", "", "{schedule}/cancel"),
    View("schedule_pages.ask_confirm", "", "{proposed}/confirm", hostile=True),
    View("schedule_pages.ask_reject", "", "{proposed}/reject"),
    View("schedule_next.ask_move", "", "{briefing}/move-next"),
    View(
        "schedule_next.ask_move",
        "refused",
        "{close}/move-next",
        deed=pressed("Move it", New_time="2020-01-01T00:00"),
    ),
    View("schedule_bulk.ask_many", "pause", "/schedules/bulk?act=pause&pick={schedule_id}&pick={paused_id}"),
    View("schedule_bulk.ask_many", "resume", "/schedules/bulk?act=resume&pick={paused_id}&pick={broken_id}"),
    View("schedule_bulk.ask_many", "cancel", "/schedules/bulk?act=cancel&pick={schedule_id}"),
    View("schedule_bulk.ask_many", "nothing to do", "/schedules/bulk?act=resume&pick={schedule_id}"),
    View("schedule_forms.new_schedule", "refused", "/schedules/new", deed=refused_form),
    *(
        View("schedule_forms.new_schedule", name.lower(), "/schedules/new", deed=kind(name))
        for name in ("Once", "Interval", "Daily", "Weekly", "Cron")
    ),
    View("schedule_forms.new_schedule", "an offer", "/schedules/new", deed=offers),
    View("schedule_forms.new_schedule", "for a chat", "/schedules/new?chat={chat_id}", hostile=True),
    View(
        "schedule_forms.new_schedule",
        "a duplicate, unfolded",
        "/schedules/new?from={schedule_id}",
        deed=opened,
    ),
    View("schedule_forms.open_schedule", "", "{schedule}/edit"),
    View("schedule_forms.open_schedule", "of a chat", "{chat_schedule}/edit", hostile=True),
    View("schedule_forms.open_schedule", "conflict", "{briefing}/edit", deed=conflict),
    View("run_pages.list_runs", "at work", "/runs"),
    View("run_pages.list_runs", "filtered to nothing", "/runs?status=cancelled"),
    View("run_pages.show_run", "completed", "{run}"),
    View("run_pages.show_run", "failed", "{failed_run}"),
    View("run_pages.show_run", "skipped", "{skipped_run}"),
    View("run_pages.show_run", "waits", "{waiting_run}"),
    View("run_pages.show_run", "of a chat", "{chat_run}", hostile=True),
    View("task_pages.show_task", "replied", "{task}"),
    View("task_pages.show_task", "waits", "{open_task}"),
    View("node_pages.list_nodes", "at work", "/nodes"),
    View(
        "node_pages.list_nodes", "refused", "/nodes", deed=pressed("Register and show its token", Alias="-")
    ),
    View("node_pages.list_nodes", "of a viewer", "/nodes", VIEWER),
    View("node_pages.show_node", "at work", "{node}", deed=opened),
    View("node_pages.show_node", "takes no work", "{stopped_node}"),
    View("node_pages.show_node", "of a viewer", "{node}", VIEWER),
    View("node_pages.ask_rotate_token", "", "{node}/token"),
    View("node_pages.confirm_delete", "", "{node}/delete"),
    View("chat_pages.list_chats", "at work", "/chats", hostile=True),
    View("chat_pages.list_chats", "of all", "/chats?of=all"),
    View("chat_pages.show_chat", "much was said", "{chat}", hostile=True),
    View("chat_pages.show_chat", "unfolded", "{quiet_chat}", deed=opened, hostile=True),
    View("chat_pages.show_chat", "archived", "{archived_chat}"),
    View("chat_pages.show_chat", "somebody else's", "{foreign_chat}"),
    View("chat_pages.show_chat", "refused", "{quiet_chat}", deed=pressed("Send")),
    View("mandate_pages.list_mandates", "at work", "/mandates", hostile=True),
    View("mandate_pages.show_mandate", "active", "{mandate}", hostile=True),
    View("mandate_pages.show_mandate", "revoked", "{revoked_mandate}", hostile=True),
    *(
        View(f"mandate_pages.ask_{verb}", "", f"{{mandate}}/{verb}", hostile=True)
        for verb in ("change", "pause", "renew", "revoke", "resume")
    ),
    View("mandate_pages.ask_confirm", "", "{mandate}/confirm", hostile=True),
    View("mandate_pages.ask_revoke", "refused", "{mandate}/revoke", deed=pressed("Revoke"), hostile=True),
    View("approval_pages.list_approvals", "two wait", "/approvals", deed=opened, hostile=True),
    View("audit_pages.list_audit", "", "/audit", deed=opened, hostile=True),
    View("audit_pages.list_audit", "filtered to nothing", "/audit?actor=nobody-like-it"),
    View("settings.settings", "", "/settings", deed=opened),
    View("settings.settings", "of a member", "/settings", MEMBER),
    View("settings.settings", "of no network", "/settings", STRANGER),
    View(
        "settings.settings",
        "refused",
        "/settings",
        deed=refused_account,
    ),
    View("settings.ask_deactivate", "", "/settings/users/{vera}/deactivate"),
    View("settings.ask_deactivate", "deactivated already", "/settings/users/{dora}/deactivate"),
    View("settings.ask_remove_member", "", "/settings/members/{vera}/remove"),
    View("shell.show_keys", "", "/keys"),
    View("overview_pages.overview", "the keys", "/", deed=keys_dialog),
    View(
        "session.sign_in_page",
        "refused",
        "/sign-in",
        NOBODY,
        pressed("Sign in", Name="Mallory", Password="x"),
    ),
    View("session.sign_in_page", "a form is kept", "/schedules/new", MEMBER, kept_form),
    View("", "403", "/settings/users/{vera}/deactivate", VIEWER),
    View("", "404", "/no-such-page"),
    View("", "400", "{node}/token", deed=forged),
    View("", "409", "{schedule}/cancel", deed=too_late),
    View("", "413", "{quiet_chat}", deed=too_large),
    View("", "429", "/sign-in", NOBODY, too_often),
)
