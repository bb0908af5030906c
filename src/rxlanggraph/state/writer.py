"""The writer of a `StateActor`: what happens on its thread, its snapshots, its futures."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from reactivex import abc

from rxlanggraph.errors import BlockingCallError, InvalidTypeError, WrongProcessError

__all__ = ["Asked", "Subscription", "Writer", "freeze"]

_logger = logging.getLogger(__name__)
_S = TypeVar("_S")
_C = TypeVar("_C")


class Asked(Future[_S]):
    """The answer to one ``ask``: a ``concurrent.futures.Future`` that can be awaited, too.

    Cancelled before its turn, it takes its command back; later, cancelling does nothing.
    """

    def __init__(self, writer: Writer[_S, Any]) -> None:
        super().__init__()
        self._writer = writer

    def result(self, timeout: float | None = None) -> _S:
        """As of any future; in a reducer of the very actor it would wait for itself.

        Raises:
            BlockingCallError: That was tried.
            WrongProcessError: The actor's thread is in the process that this was forked from.
        """
        self._refuse_writer()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future; in a reducer of the very actor it would wait for itself.

        Raises:
            BlockingCallError: That was tried.
        """
        self._refuse_writer()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, _S]:
        """Wait on the running event loop; cancelling that cancels this.

        Raises:
            BlockingCallError: In a reducer of the very actor: it would wait for itself.
        """
        self._refuse_writer()
        return asyncio.wrap_future(self).__await__()

    def _refuse_writer(self) -> None:
        if not self.done():
            self._writer.check_process()
        if not self.done() and threading.current_thread() is self._writer.thread:
            raise BlockingCallError(
                "the actor would wait for itself: this is the thread that has to apply the "
                "command; send it, and let the reducer return"
            )


class Subscription(Generic[_S]):
    """One observer of the states."""

    def __init__(self, observer: abc.ObserverBase[_S]) -> None:
        self.observer = observer
        # Cleared once, by any thread; read on the actor's.
        self.active = True


class Writer(Generic[_S, _C]):
    """What happens on the actor's thread, and is confined to it where nothing else is said.

    The inbox holds what is to be done, in order; None is the end. Any thread, a signal handler or a
    finalizer may put (a ``SimpleQueue`` can be entered again).
    """

    def __init__(self, initial: _S, reducer: Callable[[_S, _C], _S]) -> None:
        self.inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.ended: Future[None] = Future()
        # Guarded by the lock of the actor, which starts it.
        self.thread: threading.Thread | None = None
        # Written in a forked child, before its own code goes on: why there is no thread.
        self.elsewhere: WrongProcessError | None = None
        # Written on the thread, as a whole; read by anyone.
        self.state: _S = freeze(initial)
        self._reducer = reducer
        self._subscriptions: list[Subscription[_S]] = []

    def check_process(self) -> None:
        """Raise if the thread is that of a parent process. Any thread; never blocks."""
        if self.elsewhere is not None:
            raise WrongProcessError(*self.elsewhere.args)

    def run(self) -> None:
        """Take steps until the end; then tell every observer."""
        while (step := self.inbox.get()) is not None:
            try:
                step()
            except BaseException:  # of a done-callback; the thread has others to serve
                _logger.exception("a callback of an actor failed")
            del step  # or the last command would be kept until the next one
        for subscription in self._subscriptions:
            self._tell(subscription, lambda observer: observer.on_completed())
        self.ended.set_result(None)

    def apply(self, command: _C, asked: Asked[_S] | None) -> None:
        """Have the reducer make the next state; tell observers, then who asked."""
        if asked is not None and not asked.set_running_or_notify_cancel():
            return
        try:
            self.state = freeze(self._reduce(command), self.state)
        except BaseException as error:
            if asked is not None:
                asked.set_exception(error)
            else:
                _logger.exception("a command that was sent to an actor failed: %r", command)
            return
        for subscription in tuple(self._subscriptions):
            self._tell_state(subscription)
        if asked is not None:
            asked.set_result(self.state)

    def _reduce(self, command: _C) -> _S:
        try:
            state = self._reducer(self.state, command)
        except StopIteration as error:  # which no future of asyncio takes
            raise RuntimeError("the reducer raised StopIteration") from error
        if inspect.iscoroutine(state) or inspect.isgenerator(state):
            state.close()
        elif not inspect.isasyncgen(state):
            return state
        raise InvalidTypeError(
            f"a reducer returns the next state, not {state!r}; it can be neither async nor a "
            "generator"
        )

    def subscribe(self, subscription: Subscription[_S]) -> None:
        """Tell a new observer the state, and from now on each later one."""
        self._subscriptions.append(subscription)
        self._tell_state(subscription)

    def unsubscribe(self, subscription: Subscription[_S]) -> None:
        """Forget an observer."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _tell_state(self, subscription: Subscription[_S]) -> None:
        state = self.state
        self._tell(subscription, lambda observer: observer.on_next(state))

    def _tell(
        self,
        subscription: Subscription[_S],
        notify: Callable[[abc.ObserverBase[_S]], None],
    ) -> None:
        if not subscription.active:
            return
        try:
            notify(subscription.observer)
        except BaseException:  # whatever it is, the thread has others to serve
            _logger.exception("an observer of an actor failed; it is told nothing more")
            subscription.active = False
            self.unsubscribe(subscription)


def freeze(value: Any, before: Any = None) -> Any:
    """Return ``value`` with its containers copied into immutable ones, all the way down.

    Mappings become read-only mappings, lists and tuples tuples, sets frozensets; anything else is
    taken as it is, and should be immutable itself (a frozen dataclass, say). Any thread.

    Args:
        value: Anything without a circle.
        before: An earlier result. Parts of ``value`` that are parts of it, in the same place, are
            taken without another look: so a small change costs little.

    Raises:
        InvalidTypeError: ``value`` contains itself, or is too deep.
    """
    try:
        return _frozen(value, before)
    except RecursionError as error:
        raise InvalidTypeError(
            f"a state cannot contain itself, nor be as deep as this {type(value).__name__} is"
        ) from error


def _frozen(value: Any, before: Any) -> Any:
    if value is before:
        return value
    if isinstance(value, Mapping):
        old = before if isinstance(before, Mapping) else {}
        return MappingProxyType({key: _frozen(item, old.get(key)) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _frozen_sequence(value, before if isinstance(before, tuple) else ())
    if isinstance(value, set | frozenset):
        return frozenset(value)
    return value


def _frozen_sequence(items: list[Any] | tuple[Any, ...], before: tuple[Any, ...]) -> Any:
    old = before + (None,) * (len(items) - len(before))
    frozen = [_frozen(item, was) for item, was in zip(items, old, strict=False)]
    # A named tuple stays one.
    made = getattr(type(items), "_make", tuple)
    return made(frozen)
