"""The page of a task, with script off, on both databases."""

from __future__ import annotations

import pytest

from tests.html.browsing import House, assert_fragments_occur
from webapp.errors import AppError
from webapp.nodes import operations
from webapp.nodes.bodies import NewTaskBody
from webapp.nodes.lifecycle import MAX_RESULT_BYTES, TaskStatus
from webapp.nodes.models import Task


def task_of_bob(house: House, text: str = "Count the sheep.") -> Task:
    """A task that Bob sent to atlas."""
    with house.backstage() as stage:
        body = NewTaskBody(node_id=stage.node.node_id, task=text)
        return operations.create_task(stage.bob, body, now=stage.clock.now())


def test_a_persons_task_shows_who_sent_it_and_everything_that_happened(house: House) -> None:
    task = task_of_bob(house)
    with house.backstage() as stage:
        stage.fetch()
        stage.acknowledge(task)
        stage.clock.advance(seconds=90)
        stage.reply(task, result="37 sheep")
    page = house.vera.get(f"/tasks/{task.task_id}")
    told = [page.index(f">{word}<") for word in ("Put in the inbox", "Fetched", "Acknowledged", "Replied")]
    assert told == sorted(told)
    assert "Bob" in page
    assert "Count the sheep." in page
    assert "37 sheep" in page
    steps = page.split("Everything that happened")[1].split("</table>")[0]
    assert steps.count(">08:13:30</time>") == 1
    assert steps.count(">1 min 30 s<") == 1, "from acknowledged to replied"


def test_a_scheduled_task_leads_to_its_run_and_schedule(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.tick(minutes=48)
        (task,) = stage.tasks()
        (run,) = stage.runs(schedule)
    page = house.alice.get(f"/tasks/{task.task_id}")
    assert f'href="/runs/{run.run_id}"' in page
    assert f'href="/schedules/{schedule.schedule_id}"' in page
    assert "the scheduler" in page


def test_its_sender_cancels_and_retries_a_task(house: House) -> None:
    task = task_of_bob(house)
    browser, address = house.bob, f"/tasks/{task.task_id}"
    page = browser.press(browser.get(address), f"{address}/cancel")
    assert browser.path == address
    assert "The task is cancelled." in page
    assert "<code>task_cancelled</code>" in page
    page = browser.press(page, f"{address}/retry")
    assert "as the next attempt" in page
    assert "The attempt before had ended as cancelled." in page
    assert browser.offers(page, f"{address}/cancel")
    assert not browser.offers(page, f"{address}/retry")


def test_a_task_that_ended_meanwhile_is_not_cancelled_and_the_page_says_so(house: House) -> None:
    task = task_of_bob(house)
    browser, address = house.bob, f"/tasks/{task.task_id}"
    stale = browser.get(address)
    with house.backstage() as stage:
        stage.serve()
    page = browser.press(stale, f"{address}/cancel")
    assert browser.status == 409
    assert "<code>task_already_final</code>" in page
    assert "Nothing is left to cancel" in page
    assert ">replied<" in page.replace("</svg>", ">").replace("\n", "")


def test_who_may_not_steer_a_task_sees_no_button_and_is_refused(house: House) -> None:
    task = task_of_bob(house)
    address = f"/tasks/{task.task_id}"
    page = house.vera.get(address)
    assert not house.vera.offers(page, f"{address}/cancel")
    assert house.alice.offers(house.alice.get(address), f"{address}/cancel")
    house.charlie.get(address, 404)
    for browser, status in ((house.vera, 403), (house.charlie, 404)):
        browser.get("/nodes")
        with browser.client.session_transaction() as session:
            token = session["csrf"]
        answer = browser.client.post(f"{address}/cancel", data={"csrf_token": token})
        assert answer.status_code == status


def test_a_refused_report_and_the_answer_of_an_earlier_attempt_are_kept_in_sight(house: House) -> None:
    task = task_of_bob(house)
    address = f"/tasks/{task.task_id}"
    with house.backstage() as stage:
        stage.serve(TaskStatus.FAILED)
        with pytest.raises(AppError, match="task_already_final"):
            stage.reply(task, TaskStatus.REPLIED, "too late")
    browser = house.alice
    page = browser.press(browser.get(address), f"{address}/retry")
    assert "Refused a report" in page
    assert "<code>task_already_final</code>" in page
    assert "The answer of that attempt" in page


def test_a_cut_answer_is_marked_and_escaped(house: House) -> None:
    task = task_of_bob(house)
    with house.backstage() as stage:
        stage.fetch()
        stage.acknowledge(task)
        stage.reply(task, result="<b>" + "é" * MAX_RESULT_BYTES)
    page = house.alice.get(f"/tasks/{task.task_id}")
    assert "Cut at 64 KiB" in page
    assert "<b>é" not in page
    assert "&lt;b&gt;é" in page


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("task_id", ["task_notthere", "x", "task_" + "a" * 300])
def test_an_unknown_task_is_a_page_that_says_so(house: House, task_id: str) -> None:
    page = house.alice.get(f"/tasks/{task_id}", 404)
    assert "There is nothing here" in page


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_loading_the_address_of_a_button_leads_back_to_the_task(house: House) -> None:
    address = f"/tasks/{task_of_bob(house).task_id}"
    for action in ("cancel", "retry"):
        assert house.alice.client.get(f"{address}/{action}").headers["Location"] == address
        assert house.charlie.client.get(f"{address}/{action}").status_code == 404


def test_the_fragment_occurs_in_its_page(house: House) -> None:
    task = task_of_bob(house)
    assert_fragments_occur(house.alice, f"/tasks/{task.task_id}", ("task-story",))
