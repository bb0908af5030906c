"""Random histories of what is used of a limit, and what a sliding window allows of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rxlanggraph.limits.windows import Window
from support.bridge import machines  # noqa: F401 - tells Hypothesis where to keep its files
from support.limits.provider import Bucket

__all__ = ["check_bucket", "check_window"]

REQUESTS, TOKENS, PER = 5, 100, 10.0
ASKED = st.lists(
    st.tuples(
        st.just(0.0) | st.floats(0, 30),  # seconds until the next one asks; often at once
        st.integers(0, 60),  # tokens reserved
        st.integers(0, 60),  # tokens used
    ),
    max_size=60,
)
Asked = list[tuple[float, int, int]]


def check(admitted: list[tuple[float, int]]) -> None:
    for time, _ in admitted:
        inside = [used for other, used in admitted if time <= other < time + PER]
        assert len(inside) <= REQUESTS, (time, inside)
        assert sum(inside) <= TOKENS, (time, inside)


def use_window(asked: Asked) -> None:
    window, now = Window(REQUESTS, TOKENS, PER), 0.0
    admitted: list[tuple[float, int]] = []
    for pause, reserved, used in asked:
        now += pause
        slot, delay = window.reserve(reserved, now)
        if delay:
            now += delay
            slot, delay = window.reserve(reserved, now)
            assert delay == 0, delay
        spent = min(used, reserved)
        window.change(slot, 0, spent - reserved)
        admitted.append((now, spent))
        assert len(window.used) <= 103, len(window.used)
    check(admitted)


def use_bucket(asked: Asked) -> None:
    bucket, now = Bucket(REQUESTS, PER), 0.0
    admitted: list[tuple[float, int]] = []
    for pause, _, _ in asked:
        now += pause
        now += bucket.wait_for(1, now)
        bucket.wait_for(1, now)
        bucket.use(1, now)
        admitted.append((now, 0))
    check(admitted)


def _check(use: Callable[[Asked], None]) -> None:
    phases = (Phase.generate, Phase.target, Phase.shrink)
    settings(max_examples=200, deadline=None, database=None, phases=phases, derandomize=True)(
        given(ASKED)(use)
    )()


def check_window() -> None:
    _check(use_window)


def check_bucket() -> None:
    _check(use_bucket)
