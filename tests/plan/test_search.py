from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetsim.search.rate_matching import smallest


@given(answer=st.integers(1, 5000), start=st.integers(1, 5000), stride=st.integers(1, 600), most=st.integers(1, 4000))
def test_it_finds_the_smallest_whatever_the_start(answer: int, start: int, stride: int, most: int) -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= answer

    assert smallest(holds, start, most, stride=stride) == (answer if answer <= most else None)
    assert all(1 <= n <= most for n in asked)
    assert len(set(asked)) <= 2 + 2 * most.bit_length()


def test_a_good_guess_costs_two_questions() -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= 13

    assert smallest(holds, 13, 1000) == 13
    assert set(asked) == {12, 13}
