"""StateActor: a state that one thread owns, and to which all other threads send commands.

Commands are applied one after another on the actor's own thread, so a reducer needs no lock and
never runs concurrently with itself. Other threads see immutable snapshots.

The thread refers to the inbox, not to the actor: an actor that is dropped without being closed is
collected, which ends the thread.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.concurrency.closing import AsyncClosingContext, ClosingContext
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork, wrong_process
from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import (
    BlockingCallError,
    InvalidTypeError,
    StateClosedError,
    WrongProcessError,
)

__all__ = ["Reply", "StateActor", "freeze"]

_log = logging.getLogger("rxlanggraph")
_names = itertools.count(1)
_S = TypeVar("_S")
_C = TypeVar("_C")


class StateActor(ClosingContext, AsyncClosingContext, Generic[_S, _C]):
    """A state with one writer: commands come from any thread or loop, and are applied in order.

    The thread of the actor, a daemon, starts with the first command or subscription and ends with
    `close`. As a context manager, sync and async, the actor is closed at the end.

    Args:
        initial: The first state. Its mappings, lists and sets are frozen, recursively (see
            `freeze`); any other object in it is handed out as it is, and you must not mutate it:
            use frozen dataclasses and bytes instead of plain ones and bytearrays.
        reducer: Takes the state and a command, and returns the next state; a plain function without
            side effects, neither async nor a generator. It sees the same frozen state as observers.
        name: The name of the thread; None for a unique one.

    Raises:
        InvalidTypeError: ``reducer`` is not a plain function, or ``initial`` contains itself.
    """

    def __init__(
        self, initial: _S, reducer: Callable[[_S, _C], _S], *, name: str | None = None
    ) -> None:
        _check_reducer(reducer)
        self.name = name or f"rxlanggraph-actor-{next(_names)}"
        self._actor_thread = _ActorThread(initial, reducer)
        # An RLock, because a signal handler may send while its own thread holds the lock. Guards
        # the thread of the actor and the next two fields: nothing enters the inbox after the None
        # that ends it.
        self._lock = fork_safe_rlock()
        self._closed = False
        # Empty once the thread has been started. The call that starts it pops the function, in a
        # single step that no signal handler can interrupt: otherwise the handler could start a
        # second thread.
        self._to_start = [self._actor_thread.run]
        # Otherwise the thread of a collected actor would wait forever.
        weakref.finalize(self, self._actor_thread.inbox.put, None).atexit = False
        register_after_fork(self)

    def __repr__(self) -> str:
        """Show the name, and whether the actor is closed."""
        return f"<StateActor {self.name} {'closed' if self._closed else 'open'}>"

    @property
    def state(self) -> _S:
        """The latest state, an immutable snapshot; see `freeze`. Any thread; never blocks."""
        return self._actor_thread.state

    @property
    def states(self) -> Observable[_S]:
        """The current state, and then each later one, as an Observable.

        May be subscribed to and disposed of from any thread. Items arrive on the actor's thread,
        one at a time, in order, without gaps; it completes when the actor is closed. An observer
        that raises gets nothing more; the others are not affected.
        """

        def subscribe(
            observer: abc.ObserverBase[_S], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            subscription = _Subscription(observer)
            thread = self._actor_thread

            def dispose() -> None:
                subscription.active = False
                thread.inbox.put(partial(thread.unsubscribe, subscription))

            if not self._put(partial(thread.subscribe, subscription)):
                observer.on_completed()
            return Disposable(dispose)

        return Observable(subscribe)

    def send(self, command: _C) -> None:
        """Send ``command`` without waiting until it is applied.

        Any thread, also in a reducer or a signal handler; never blocks. Commands of one thread are
        applied in the order of sending. If the reducer raises, the state is unchanged, and the
        error is logged.

        Raises:
            StateClosedError: The actor is closed.
            WrongProcessError: This is a forked child, and the actor's thread is in the parent.
        """
        self._admit(partial(self._actor_thread.apply, command, None))

    def ask(self, command: _C) -> Reply[_S]:
        """Apply ``command``; return the future of the resulting state.

        Any thread; never blocks. On a loop: ``await actor.ask(command)``; in a thread:
        ``actor.ask(command).result(timeout)``. If the reducer raises, the state is unchanged, and
        the future has the error. Cancelling the future before the command is applied withdraws the
        command.

        On the actor's own thread (in a reducer, in an observer) the future's methods raise
        BlockingCallError, because they would wait forever. Functions such as
        ``concurrent.futures.wait`` cannot detect this.

        Raises:
            StateClosedError: The actor is closed.
            WrongProcessError: As in `send`.
        """
        reply: Reply[_S] = Reply(self._actor_thread)
        self._admit(partial(self._actor_thread.apply, command, reply))
        return reply

    def _admit(self, step: Callable[[], None]) -> None:
        if not self._put(step):
            raise StateClosedError(
                f"the actor {self.name} is closed, and takes no more commands; make a new one "
                "from its last `state`"
            )

    def _put(self, step: Callable[[], None]) -> bool:
        with self._lock:
            self._actor_thread.check_process()
            if not self._closed:
                self._start()
            if self._closed:  # a signal handler may have closed it just now
                return False
            self._actor_thread.inbox.put(step)
            return True

    def _start(self) -> None:
        try:
            run = self._to_start.pop()
        except IndexError:
            return
        try:
            thread = threading.Thread(target=run, name=self.name, daemon=True)
            self._actor_thread.thread = thread
            start_detached(thread)
        except BaseException:
            self._actor_thread.thread = None
            self._to_start.append(run)
            raise

    def _after_fork(self) -> None:
        """In a forked child: a thread that was started is the parent's. See `forking`."""
        if not self._to_start:
            self._actor_thread.fork_error = wrong_process(
                self.name, "make an actor of its own here, from the last `state`"
            )
            self._actor_thread.thread = None

    def close(self) -> None:
        """Refuse new commands, apply those that were sent, and end the thread.

        Any thread; blocks until the thread has ended, except in a reducer or an observer of this
        actor. Idempotent. The last `state` stays available.
        """
        self._seal()
        thread = self._actor_thread.thread
        # Not alive: ended, or being started by the code that a signal handler interrupted.
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join()

    async def aclose(self) -> None:
        """Async form of `close`, in all respects. Any loop. Cancelling it ends only the waiting."""
        self._seal()
        thread = self._actor_thread.thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            await asyncio.wait([asyncio.wrap_future(self._actor_thread.ended)])
            thread.join()  # it has nothing left to do

    def _seal(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._actor_thread.inbox.put(None)


def _check_reducer(reducer: object) -> None:
    # A callable object is called through its class.
    if not callable(reducer) or not (_is_plain(reducer) and _is_plain(type(reducer).__call__)):
        raise InvalidTypeError(
            "reducer must be a plain function, neither async nor a generator, which returns the "
            f"next state, not {reducer!r}"
        )


def _is_plain(function: Any) -> bool:
    return not (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


# -- the thread ------------------------------------------------------------------------------------


class Reply(Future[_S]):
    """The answer to one ``ask``: a ``concurrent.futures.Future`` that can be awaited, too.

    Cancelling it before the command is applied withdraws the command; later it has no effect.
    """

    def __init__(self, thread: _ActorThread[_S, Any]) -> None:
        super().__init__()
        self._actor_thread = thread

    def result(self, timeout: float | None = None) -> _S:
        """Return the resulting state, as for any future. Any thread; blocks.

        Raises:
            BlockingCallError: Called on the actor's own thread, which would wait for itself.
            WrongProcessError: The actor's thread is in the process that this one was forked from.
        """
        self._refuse_own_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the reducer, or None, as for any future. Any thread; blocks.

        Raises:
            BlockingCallError, WrongProcessError: As `result`.
        """
        self._refuse_own_thread()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, _S]:
        """Wait on the running event loop; cancelling the wait cancels this future.

        Raises:
            BlockingCallError, WrongProcessError: As `result`.
        """
        self._refuse_own_thread()
        return asyncio.wrap_future(self).__await__()

    def _refuse_own_thread(self) -> None:
        if not self.done():
            self._actor_thread.check_process()
        if not self.done() and threading.current_thread() is self._actor_thread.thread:
            raise BlockingCallError(
                "the actor would wait for itself: its own thread has to apply the command; "
                "use send() here, and do not wait"
            )


class _Subscription(Generic[_S]):
    """The subscription of one observer."""

    def __init__(self, observer: abc.ObserverBase[_S]) -> None:
        self.observer = observer
        # Cleared once, from any thread; read on the actor's thread.
        self.active = True


class _ActorThread(Generic[_S, _C]):
    """The work of the actor's thread; confined to it unless stated otherwise.

    The inbox has the steps to execute, in order; None ends the thread. Any thread, a signal handler
    or a finalizer may put into it (a ``SimpleQueue`` is reentrant).
    """

    def __init__(self, initial: _S, reducer: Callable[[_S, _C], _S]) -> None:
        self.inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.ended: Future[None] = Future()
        # Guarded by the lock of the actor, which starts it.
        self.thread: threading.Thread | None = None
        # Set in a forked child, before its own code continues: the error of calls there.
        self.fork_error: WrongProcessError | None = None
        # Written on the thread, replaced whole; read by any thread.
        self.state: _S = freeze(initial)
        self._reducer = reducer
        self._subscriptions: list[_Subscription[_S]] = []

    def check_process(self) -> None:
        """Raise if the thread is in a parent process. Any thread; never blocks."""
        if self.fork_error is not None:
            raise WrongProcessError(*self.fork_error.args)

    def run(self) -> None:
        """Execute steps until the end; then complete every observer."""
        while (step := self.inbox.get()) is not None:
            try:
                step()
            except BaseException:  # of a done-callback: the thread must execute the other steps
                _log.exception("a callback of an actor failed")
            del step  # otherwise it stays referenced while the thread waits
        for subscription in self._subscriptions:
            self._notify(subscription, lambda observer: observer.on_completed())
        self.ended.set_result(None)

    def apply(self, command: _C, reply: Reply[_S] | None) -> None:
        """Make the next state with the reducer; notify the observers, then resolve ``reply``."""
        if reply is not None and not reply.set_running_or_notify_cancel():
            return
        try:
            self.state = freeze(self._reduce(command), self.state)
        except BaseException as error:
            if reply is not None:
                reply.set_exception(error)
            else:
                _log.exception("a command that was sent to an actor failed: %r", command)
            return
        for subscription in tuple(self._subscriptions):
            self._notify_state(subscription)
        if reply is not None:
            reply.set_result(self.state)

    def _reduce(self, command: _C) -> _S:
        try:
            state = self._reducer(self.state, command)
        except StopIteration as error:  # asyncio's futures refuse it
            raise RuntimeError("the reducer raised StopIteration") from error
        if inspect.iscoroutine(state) or inspect.isgenerator(state):
            state.close()
        elif not inspect.isasyncgen(state):
            return state
        raise InvalidTypeError(
            f"a reducer must return the next state, not {state!r}; it must be neither async nor a "
            "generator"
        )

    def subscribe(self, subscription: _Subscription[_S]) -> None:
        """Send a new observer the current state, and from now on each later one."""
        self._subscriptions.append(subscription)
        self._notify_state(subscription)

    def unsubscribe(self, subscription: _Subscription[_S]) -> None:
        """Remove an observer."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _notify_state(self, subscription: _Subscription[_S]) -> None:
        state = self.state
        self._notify(subscription, lambda observer: observer.on_next(state))

    def _notify(
        self,
        subscription: _Subscription[_S],
        notify: Callable[[abc.ObserverBase[_S]], None],
    ) -> None:
        if not subscription.active:
            return
        try:
            notify(subscription.observer)
        except BaseException:  # whatever it is: the thread has other observers
            _log.exception("an observer of an actor failed, and was unsubscribed")
            subscription.active = False
            self.unsubscribe(subscription)


# -- snapshots -------------------------------------------------------------------------------------


def freeze(value: Any, before: Any = None) -> Any:
    """Return ``value`` with its containers copied into immutable ones, recursively.

    Mappings become read-only mappings, lists and tuples tuples, sets frozensets; anything else is
    kept as it is, and should be immutable itself (a frozen dataclass, say). Any thread.

    Args:
        value: Anything without reference cycles.
        before: An earlier result. Parts of ``value`` that are the same objects as the parts of
            ``before`` in the same place are reused as they are, so a small change costs little.

    Raises:
        InvalidTypeError: ``value`` contains itself, or is nested too deeply.
    """
    try:
        return _frozen(value, before)
    except RecursionError as error:
        raise InvalidTypeError(
            f"a state must not contain itself, nor be nested as deeply as this "
            f"{type(value).__name__} is"
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
    frozen = [_frozen(item, old_item) for item, old_item in zip(items, old, strict=False)]
    make = getattr(type(items), "_make", tuple)  # a named tuple keeps its type
    return make(frozen)
