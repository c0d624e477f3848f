"""Runs side by side: in order, on one pool, and over when the call is."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest

from fleetsim.sim import threads
from fleetsim.sim.stop import STOP, stopping
from fleetsim.sim.threads import side_by_side


def test_results_and_what_is_told_are_in_the_order_of_the_items() -> None:
    told: list[tuple[int, int]] = []
    assert side_by_side(lambda i: i * i, range(20), each=lambda i, found: told.append((i, found))) == [
        i * i for i in range(20)
    ]
    assert told == [(i, i * i) for i in range(20)]


def test_nothing_goes_on_behind_the_back_of_who_gave_up() -> None:
    """A failing run, or a caller that raises, ends when the runs that were under way have ended; others never begin."""
    begun: list[int] = []
    at_work = threading.Event()

    def run(i: int) -> int:
        begun.append(i)
        at_work.set()
        time.sleep(0.01)
        at_work.clear()
        if i == 3:
            raise ValueError("the third")
        return i

    with pytest.raises(ValueError, match="the third"):
        side_by_side(run, range(500))
    seen = len(begun)
    assert seen < 500
    time.sleep(0.05)
    assert len(begun) == seen
    begun.clear()

    def heard(i: int, _: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        side_by_side(lambda i: begun.append(i) or i, range(10_000), each=heard)
    seen = len(begun)
    time.sleep(0.05)
    assert len(begun) == seen < 10_000


def test_many_calls_share_one_pool_and_leave_no_threads() -> None:
    side_by_side(lambda i: i, range(8))
    before = threading.active_count()
    for _ in range(200):
        side_by_side(lambda i: i, range(4))
    assert threading.active_count() <= before + 1


def test_a_run_that_asks_for_runs_makes_them_itself() -> None:
    """Else all threads of the pool could wait for runs that no thread is left for."""
    found = side_by_side(lambda i: side_by_side(lambda j: (i, j), range(5)), range(16))
    assert found == [[(i, j) for j in range(5)] for i in range(16)]


def test_ctrl_c_is_heard_by_runs_within_runs() -> None:
    seen = threading.Event()

    def inner(_: int) -> bool:
        seen.set()
        for _ in range(1000):
            if stopping():
                return True
            time.sleep(0.01)
        return False

    stop = threading.Event()

    def heard(i: int, found: list[bool]) -> None:
        assert found == [True, True]

    def press() -> None:
        seen.wait()
        stop.set()

    threading.Thread(target=press).start()
    assert side_by_side(lambda _: side_by_side(inner, range(2)), range(2), stop, heard) == [[True] * 2] * 2
    assert STOP.get() is None


def _in_child(answers: multiprocessing.SimpleQueue[list[int]]) -> None:
    answers.put(side_by_side(lambda i: i + 1, range(4)))


def test_a_forked_child_makes_a_pool_of_its_own() -> None:
    side_by_side(lambda i: i, range(4))
    assert threads._pool.cache_info().currsize == 1
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(answers,))
    child.start()
    child.join(60)
    assert child.exitcode == 0, "the child waits for threads that it does not have"
    assert answers.get() == [1, 2, 3, 4]
