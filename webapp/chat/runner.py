"""Runs turns beside the worker's loop: a few threads, each with one turn in hand; nothing here sleeps on a turn.

One thread looks for turns that nobody is at and hands each to a thread of its own. A turn is made of short steps
(`execution.py`) with one request to a model between them; what has to wait (for an endpoint, for a person) is given
back, so that any worker can take it up. When the worker is to leave, a request under way is given a moment to end;
then it is broken off and its turn given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError

from webapp.chat import actions, context, execution, model, profiles
from webapp.chat.execution import Acted, Grant, Hold, Lost, Used, WantedCall
from webapp.clock import Clock
from webapp.config import ModelProfile
from webapp.ids import new_id
from webapp.logs import bound, get_logger
from webapp.store import reading

THREADS = 4
# How long requests under way may still take when the worker is to leave.
LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 1.0
_BEAT_SECONDS = 5.0
_MAX_CALLS = 25
_log = get_logger(__name__)

Scope = Callable[[], AbstractContextManager[object]]


@dataclass
class Runner:
    """Takes turns up and carries them through, until told to stop.

    `scope` gives what each thread needs around its work (an app context).
    """

    scope: Scope
    clock: Clock
    threads: int = THREADS
    owner: str = field(default_factory=lambda: new_id("run"))

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._wake = threading.Event()
        self._free = threading.BoundedSemaphore(self.threads)
        self._working: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._looker = threading.Thread(target=self._look, name="turns", daemon=True)

    def start(self) -> None:
        """Begin to look for turns."""
        self._looker.start()

    def wake(self) -> None:
        """Look now: something has changed."""
        self._wake.set()

    def stop(self) -> None:
        """Take nothing up any more, and return when every turn in hand has ended or was given back."""
        self._stop.set()
        self._wake.set()
        self._looker.join()
        with self._lock:
            working = list(self._working)
        deadline = self.clock.monotonic() + LEAVE_SECONDS
        for thread in working:
            thread.join(max(0.0, deadline - self.clock.monotonic()))
        self._give_up.set()
        for thread in working:
            thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            if not self._free.acquire(timeout=_LOOK_SECONDS):
                continue
            hold = None
            try:
                with self.scope():
                    hold = execution.take_turn(f"{self.owner}-{new_id('t')}", now=self.clock.now())
            except Exception:  # noqa: BLE001 - a runner outlives a database that is away
                _log.exception("no turn could be taken up; looking again")
            if hold is None:
                self._free.release()
                self._wake.wait(_LOOK_SECONDS)
                self._wake.clear()
                continue
            self._hand_over(hold)

    def _hand_over(self, hold: Hold) -> None:
        thread = threading.Thread(target=self._work, args=(hold,), name=hold.turn_id, daemon=True)
        with self._lock:
            self._working.add(thread)
        thread.start()

    def _work(self, hold: Hold) -> None:
        try:
            with self.scope(), bound(turn_id=hold.turn_id):
                carry(hold, self.clock, leaving=self._stop.is_set, give_up=self._give_up.is_set)
        finally:
            with self._lock:
                self._working.discard(threading.current_thread())
            self._free.release()
            self._wake.set()


def carry(
    hold: Hold,
    clock: Clock,
    *,
    leaving: Callable[[], bool] = lambda: False,
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Carry a turn in hand as far as it goes: to its end, or to where it waits for something.

    `leaving` is asked between steps, `give_up` while a request is under way; a yes gives the turn back. Needs an
    app context. Never raises: what goes wrong ends the turn, or leaves it to recovery.
    """
    try:
        with reading() as session:
            history = execution.history_of(session, hold)
        while history is not None:
            if leaving():
                execution.release(hold, now=clock.now())
                return
            history = _step(hold, history, clock, give_up)
    except Lost:
        _log.info("the turn went into other hands")
    except DBAPIError:
        # Its lease runs out; recovery sees whether the model was asked.
        _log.exception("the database failed under a turn; it is left to recovery")
    except Exception:  # noqa: BLE001 - one turn must not take the others with it
        _log.exception("a turn cannot be carried on")
        _fail(hold, clock)


def _fail(hold: Hold, clock: Clock) -> None:
    try:
        execution.fail(hold, "turn_failed", "Something failed inside the worker.", now=clock.now())
    except Exception:  # noqa: BLE001 - its lease runs out, and recovery ends it
        _log.exception("a turn cannot be ended; it is left to recovery")


def _step(hold: Hold, history: str, clock: Clock, give_up: Callable[[], bool]) -> str | None:
    """The next step of a turn: what the model asked for, or a request to it. None: it is out of these hands."""
    if history:
        calls = model.open_calls(history)
        if calls:
            return _act_all(hold, calls, clock)
    else:
        with reading() as session:
            told = context.load(session, hold.turn_pk, now=clock.now())
        history = model.begin(told.instructions, told.before, told.prompt)
    return _ask(hold, history, clock, give_up)


def _act_all(hold: Hold, calls: tuple[model.Call, ...], clock: Clock) -> str | None:
    asked = False
    for number, call in enumerate(calls):
        wanted = WantedCall(call.key, call.name, call.arguments if number < _MAX_CALLS else None)
        acted = execution.act(hold, wanted, model.add_result, now=clock.now())
        if acted is Acted.ENDED:
            return None
        asked = asked or acted is Acted.ASKED
    if asked and execution.wait_for_answers(hold, now=clock.now()):
        return None
    with reading() as session:
        return execution.history_of(session, hold)


def _ask(hold: Hold, history: str, clock: Clock, give_up: Callable[[], bool]) -> str | None:
    profile = profiles.find(hold.model)
    if profile is None:
        message = f"The profile {hold.model} is not set up where the worker runs."
        execution.fail(hold, "model_unavailable", message, now=clock.now())
        return None
    offers = [
        model.Offer(tool.name, tool.description, dict(tool.parameters))
        for tool in actions.all_tools().values()
    ]
    most = model.most_input_tokens(history, offers)
    grant = execution.request_sent(hold, history, most_input_tokens=most, now=clock.now())
    if grant is None:
        return None
    try:
        answer = _request(hold, profile, history, offers, grant, clock, give_up)
    except model.Stopped:
        execution.request_given_up(hold, now=clock.now())
        return None
    except model.ModelTrouble as trouble:
        _log.warning("the model did not answer", code=trouble.code, transient=trouble.transient)
        execution.request_failed(
            hold,
            code=trouble.code,
            message=trouble.message,
            transient=trouble.transient,
            retry_after_seconds=trouble.retry_after_seconds,
            now=clock.now(),
        )
        return None
    # What is not said is counted as the most that it can have been.
    used = Used(*answer.tokens) if answer.tokens is not None else Used(most, len(answer.text.encode()) + 1)
    goes_on = execution.answer_kept(
        hold, answer.history, answer.text, used, has_calls=bool(answer.calls), now=clock.now()
    )
    return answer.history if goes_on else None


def _request(
    hold: Hold,
    profile: ModelProfile,
    history: str,
    offers: list[model.Offer],
    grant: Grant,
    clock: Clock,
    give_up: Callable[[], bool],
) -> model.Answer:
    beaten_at = clock.monotonic()

    def should_stop() -> bool:
        nonlocal beaten_at
        if give_up():
            return True
        if clock.monotonic() - beaten_at >= _BEAT_SECONDS:
            beaten_at = clock.monotonic()
            execution.extend_lease(hold)
        return not execution.is_wanted(hold)

    return model.ask(
        profile,
        history,
        offers,
        max_output_tokens=grant.max_output_tokens,
        timeout_seconds=grant.timeout_seconds,
        should_stop=should_stop,
    )
