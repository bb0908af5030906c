"""Entering code where a signal handler or a finalizer may: between any two of its steps.

CPython looks for signals and for garbage when a call has returned, at the begin of a function and
at the end of a loop's round; older ones collect garbage at any allocation. `enter_everywhere` goes
through the places one by one: before each line, and after each call within a line.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Generic, Literal, TypeVar

__all__ = ["Enterable", "Way", "enter_everywhere", "one_by_one", "raise_everywhere"]

_T = TypeVar("_T")
Way = Literal["signal handler", "finalizer"]


class _Places:
    """A trace function that calls ``enter`` at the place number ``wanted``, counted from 1."""

    def __init__(
        self,
        files: frozenset[str],
        wanted: int,
        enter: Callable[[], object],
        *,
        at_lines: bool,
    ) -> None:
        self.seen = 0
        self._files = files
        self._wanted = wanted
        self._enter = enter
        self._at_lines = at_lines
        self._last: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if not last.startswith(("CALL", "JUMP_BACKWARD")):
                return self
        elif event != ("line" if self._at_lines else "call"):
            return self
        self.seen += 1
        if self.seen == self._wanted:
            self._enter()
        return self


class _Garbage:
    def __init__(self, enter: Callable[[], object]) -> None:
        self.itself = self
        self.enter = enter

    def __del__(self) -> None:
        self.enter()


def _by_signal(enter: Callable[[], object]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: enter())
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def _by_finalizer(enter: Callable[[], object]) -> None:
    _Garbage(enter)
    gc.collect(0)


_WAYS: dict[str, Callable[[Callable[[], object]], None]] = {
    "signal handler": _by_signal,
    "finalizer": _by_finalizer,
}


def enter_everywhere(
    files: set[str],
    way: Way,
    *,
    make: Callable[[], _T],
    operation: Callable[[_T], object],
    entry: Callable[[_T], object],
    check: Callable[[_T], object],
) -> int:
    """For each place in ``files`` that ``operation`` comes through, enter there with ``entry``.

    Returns:
        How many places there were.
    """
    failures: list[BaseException] = []

    def enter(subject: _T) -> None:
        try:
            entry(subject)
        except BaseException as failure:  # would end the tracing, or be only printed
            failures.append(failure)

    def check_both(subject: _T) -> None:
        if failures:
            raise failures[0]
        check(subject)

    return _come_in_everywhere(
        files,
        lambda subject: _WAYS[way](partial(enter, subject)),
        make=make,
        operation=operation,
        check=check_both,
    )


@contextlib.contextmanager
def one_by_one(
    make: Callable[[], _T], discard: Callable[[_T], object]
) -> Iterator[Callable[[], _T]]:
    """A ``make`` that first discards what it made before. The last one is discarded at the end."""
    made: list[_T] = []

    def discard_last() -> None:
        while made:
            discard(made.pop())

    def make_next() -> _T:
        discard_last()
        made.append(make())
        return made[0]

    try:
        yield make_next
    finally:
        discard_last()


@dataclass(frozen=True)
class Enterable(Generic[_T]):
    """What a signal handler or a finalizer may enter: its code, and what there is to do with it."""

    files: set[str]
    make: Callable[[str], _T]  # it is told the operation to come
    operations: Mapping[str, Callable[[_T], object]]
    entries: Mapping[str, tuple[Callable[[_T], object], Callable[[_T], object]]]  # and the checks
    discard: Callable[[_T], object] = lambda _: None

    def enter(self, way: Way, inside: str, does: str) -> int:
        """As ``enter_everywhere``, by names of an operation and of an entry."""
        entry, check = self.entries[does]
        with one_by_one(partial(self.make, inside), self.discard) as make:
            return enter_everywhere(
                self.files,
                way,
                make=make,
                operation=self.operations[inside],
                entry=entry,
                check=check,
            )


def raise_everywhere(
    files: set[str],
    exception: type[BaseException],
    *,
    make: Callable[[], _T],
    operation: Callable[[_T], object],
    check: Callable[[_T], object],
) -> int:
    """For each place in ``files`` that ``operation`` comes through, have a signal handler raise.

    Returns:
        How many places there were.
    """

    def make_alone() -> _T:
        subject = make()
        gc.collect()  # what an earlier one has left is not to end in the middle of this one
        return subject

    def interrupt() -> None:
        raise exception("of a signal handler")

    def operate(subject: _T) -> None:
        with contextlib.suppress(exception):
            operation(subject)

    gc.disable()
    try:
        # Not before each line: a with block begins to end on a line, where no check looks for
        # signals, and an exception there would leave its lock locked.
        return _come_in_everywhere(
            files,
            lambda _: _by_signal(interrupt),
            make=make_alone,
            operation=operate,
            check=check,
            at_lines=False,
        )
    finally:
        gc.enable()


def _come_in_everywhere(
    files: set[str],
    come_in: Callable[[_T], object],
    *,
    make: Callable[[], _T],
    operation: Callable[[_T], object],
    check: Callable[[_T], object],
    at_lines: bool = True,
) -> int:
    place = 0
    while True:
        place += 1
        subject = make()
        entered: list[bool] = []

        def enter(subject: _T = subject, entered: list[bool] = entered) -> None:
            entered.append(True)
            come_in(subject)

        before = sys.gettrace()
        sys.settrace(_Places(frozenset(files), place, enter, at_lines=at_lines))
        try:
            operation(subject)
        finally:
            sys.settrace(before)
        if not entered:
            return place - 1
        try:
            check(subject)
        except BaseException as error:
            error.add_note(f"after what came in at place {place}")
            raise
