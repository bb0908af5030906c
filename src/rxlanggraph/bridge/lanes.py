"""Lanes between processes: a run on a thread begins when its bridge has the thread's lease.

What breaks without it: two processes on one checkpoint saver continue one thread from the same
checkpoint. Both say that they have succeeded, and what one of them has saved is lost.

A lock of a `State` is a thread's lease: it is renewed while a run of the thread has not really
ended, and the store grants it to one bridge at a time. Bridge and state may have different loops;
then a graph that blocks its loop does not cost the leases of all others.

Rules:

1. The bridge that has a lease keeps it for the next run of its own on that thread, unless another
   bridge waits for it. A lease is given back when no run of its thread is left.
2. A bridge that waits leaves a note in the store, which expires unless it is renewed. A bridge that
   finds the note of another one, at the end of a run or before it asks for the lease, lets that one
   go first: a waiting bridge asks more often than a newcomer waits.
3. A lease that was lost ends its run with a `LaneLostError`, and lets nothing through to the
   graph's saver any more: see `fenced_saver`.
4. A bridge asks for as many leases ahead of their runs as it has slots, or as a subscription may
   have runs: a backlog on many threads does not keep these from other processes. A lease that
   another process has does not count.
5. A run leaves the registry after its lease was given back: so a bridge that was closed holds none.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import uuid
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from rxlanggraph.bridge.run import Run
from rxlanggraph.concurrency.run_on_loop import check_reachable
from rxlanggraph.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidTypeError,
    LaneLostError,
    LeaseLostError,
    LockTimeoutError,
    LoopUnavailableError,
    RxLangGraphError,
    StateError,
    ThreadBusyError,
)
from rxlanggraph.validation import check_duration, check_identifier

if TYPE_CHECKING:
    from rxlanggraph.state import State
    from rxlanggraph.state.locks import Lease

__all__ = ["ThreadLanes", "ThreadLease", "fenced", "make_lanes"]

_log = logging.getLogger("rxlanggraph")

# Seconds. Guesses: how often a holder looks for notes; how long a waiting bridge asks before it
# renews its note, and how long that lasts; how long a newcomer waits for those with a note, which
# is longer than the longest pause between two of their requests.
_LOOK_EVERY = 0.5
_RENEW_NOTE = 0.5
_NOTE_TTL = 2.0
_DEFERENCE = 0.3
# Seconds between two looks at the loop of the state, if it is not that of the bridge.
_PROBE_EVERY = 1.0
# Strategies whose messages do not wait for another process.
_IMPATIENT = {"reject", "rollback"}


class _Dispatcher(Protocol):
    """What the dispatcher is told. On the loop of the bridge."""

    def lane_granted(self, run: Run) -> None:
        """``run`` has the lease of its thread."""

    def lane_refused(self, run: Run, error: BaseException) -> None:
        """``run``, which has not begun, does not get the lease."""

    def lane_lost(self, lease: ThreadLease, error: LaneLostError) -> None:
        """The lease of a thread was lost."""

    def lane_taken_over(self, thread_id: str, message_id: str) -> None:
        """A message in another process interrupts what is on the thread."""


def make_lanes(lanes: object, ttl: float) -> ThreadLanes | None:
    """Check the arguments of a bridge. Any thread; never blocks.

    Args:
        lanes: A `State`, or None.
        ttl: Seconds that a lease lasts without being renewed.

    Raises:
        InvalidTypeError: ``lanes`` is not a state, or ``ttl`` not a number.
        InvalidArgumentError: ``ttl`` is not positive.
    """
    check_duration("lane_ttl", ttl)
    if lanes is None:
        return None
    from rxlanggraph.state import State  # noqa: PLC0415 - most bridges need none

    if not isinstance(lanes, State):
        raise InvalidTypeError(
            f"lanes must be a State, as open_state(...) opens it, or None, not {lanes!r}"
        )
    return ThreadLanes(lanes, float(ttl))


def fenced(saver: Any) -> Any:
    """Return ``saver`` behind a fence (rule 3). Any thread; never blocks."""
    from rxlanggraph.bridge.fenced_saver import (  # noqa: PLC0415 - imports LangGraph
        FencedSaver,
        RunFence,
    )

    return FencedSaver(saver, RunFence())


class _Window:
    """The leases that are asked for, or held, and whose runs have not begun."""

    def __init__(self, key: int, limit: int) -> None:
        self.key = key
        self.limit = limit
        self.ahead = 0
        self.queue: deque[ThreadLease] = deque()  # those that are not asked for yet

    def has_room(self) -> bool:
        """Whether another one may be asked for."""
        return self.ahead < self.limit


class ThreadLanes:
    """The leases of the threads on which a bridge has runs. Confined to the bridge's loop."""

    def __init__(self, state: State, ttl: float) -> None:
        # Written here alone; read on both loops.
        self.state = state
        self.ttl = ttl
        self.owner = uuid.uuid4().hex  # by this name a bridge knows its own notes
        # Written once: by the dispatcher; the loop on the first request.
        self.dispatcher: _Dispatcher
        self.slots = 1
        self.loop: asyncio.AbstractEventLoop | None = None
        # By the id of the subscription's limit, or of None: those ahead of their runs (rule 4).
        self._windows: dict[int, _Window] = {}
        # By thread: the lease that is waited for, held, or being given back.
        self._leases: dict[str, ThreadLease] = {}
        self.closed = False
        self._probing = False
        self._standing = False  # whether the state's loop did not run when last looked at

    def request(self, run: Run) -> bool:
        """Have ``run``, the first of its thread, get the lease.

        Returns:
            True if it has it now; False if it waits: the dispatcher is told later.
        """
        thread_id = run.message.thread_id
        assert thread_id is not None
        lease = self._leases.get(thread_id)
        previous = None
        if lease is not None:
            if lease.serves_next() and (window := self._window_of(run)).has_room():
                run.lease = lease
                self._move(lease, window)
                return True
            lease.give_back()
            previous = lease.predecessor()
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        run.lease = lease = self._leases[thread_id] = ThreadLease(self, run, thread_id, previous)
        lease.window = window = self._window_of(run)
        window.queue.append(lease)
        self._ask(window)
        self._probe_later()
        return False

    def start(self, run: Run) -> bool:
        """Note that ``run`` begins; False if its lease was lost while it waited for its slot."""
        lease = run.lease
        assert isinstance(lease, ThreadLease)
        self._move(lease, None)
        return not lease.lost

    def _window_of(self, run: Run) -> _Window:
        group = run.options.group
        window = self._windows.get(id(group))
        if window is None:
            limit = self.slots if group is None else min(self.slots, group.limit)
            window = self._windows[id(group)] = _Window(id(group), limit)
        return window

    def _move(self, lease: ThreadLease, to: _Window | None) -> None:
        """Count ``lease`` as being ahead of a run, or not any more."""
        left, lease.counted = lease.counted, to
        if to is not None:
            to.ahead += 1
        if left is not None:
            left.ahead -= 1
            self._ask(left)

    def _ask(self, window: _Window) -> None:
        while window.queue and window.has_room():
            lease = window.queue.popleft()
            if not lease.over:
                self._move(lease, window)
                lease.begin()
        empty = not (window.ahead or window.queue)
        if empty and self._windows.get(window.key) is window:
            del self._windows[window.key]

    def give_back(self, thread_id: str) -> None:
        """Give back the lease of a thread that has no run any more, or stop waiting for it."""
        lease = self._leases.get(thread_id)
        if lease is not None:
            lease.give_back()

    def close(self) -> None:
        """Give everything back: the loop of the bridge ends. On that loop, or after its end."""
        self.closed = True
        for lease in list(self._leases.values()):
            lease.give_back()

    # -- what happens to a lease, as its task tells ----------------------------------------------

    def granted(self, lease: ThreadLease, held: Lease) -> None:
        """Pass the lease on to the run that waits for it, if there is still one."""
        lease.held = held
        self._move(lease, lease.window)
        run, lease.run = lease.run, None
        if run is not None and not lease.leaving:
            self.dispatcher.lane_granted(run)

    def parked(self, lease: ThreadLease) -> None:
        """Note that another bridge has the lease, which may take any time."""
        self._move(lease, None)

    def noticed(self, lease: ThreadLease, message_id: str | None) -> None:
        """Note that another bridge wants the thread; and that its message interrupts."""
        lease.wanted = True
        if message_id is not None and message_id != lease.taken_over_by and not lease.leaving:
            lease.taken_over_by = message_id
            self.dispatcher.lane_taken_over(lease.thread_id, message_id)

    def ended(self, lease: ThreadLease, error: BaseException | None) -> None:
        """Forget a lease, and say why, if it ended by itself."""
        if lease.over:
            return
        if self._leases.get(lease.thread_id) is lease:
            del self._leases[lease.thread_id]
        self._move(lease, None)
        run, lease.run = lease.run, None
        if run is not None and not lease.leaving:
            assert error is not None
            self.dispatcher.lane_refused(run, error)
        elif error is not None and not lease.leaving:
            self.dispatcher.lane_lost(lease, lease.lost_error(error))
        lease.end()

    # -- the loop of the state, if it is another one ---------------------------------------------

    def _probe_later(self) -> None:
        if not self._probing and self.state.loop is not self.loop and not self.closed:
            assert self.loop is not None
            self._probing = True
            self.loop.call_later(_PROBE_EVERY, self._probe, context=Context())

    def _probe(self) -> None:
        # What breaks without it: a loop that ended tells nothing, and its leases are waited for.
        self._probing = False
        stands = not self.state.loop.is_running()
        if stands and self._standing:
            error = LoopUnavailableError(
                f"the event loop {self.state.loop!r} of the state of the lanes does not run; "
                "close the bridge before the state"
            )
            for lease in list(self._leases.values()):
                if lease.leaving or lease.held is None or lease.lost:
                    self.ended(lease, error)
        self._standing = stands
        if self._leases:
            self._probe_later()


class ThreadLease:
    """The lease of one thread: waited for, held, given back. Made on the loop of the bridge.

    Args:
        lanes: Those of the bridge.
        run: The run that is to have it first.
        thread_id: The thread.
        previous: The lease of this bridge on that thread which is being given back.
    """

    def __init__(
        self, lanes: ThreadLanes, run: Run, thread_id: str, previous: ThreadLease | None
    ) -> None:
        # Written here alone; read on both loops.
        self.thread_id = thread_id
        self._lanes = lanes
        self._patient = run.options.multitask_strategy not in _IMPATIENT
        self._interrupts = run.message.id if run.options.multitask_strategy == "interrupt" else None
        # Confined to the loop of the bridge.
        self.run: Run | None = run  # until it has the lease
        self.wanted = False  # whether another bridge waits for it
        self.taken_over_by: str | None = None  # the message that has interrupted its run
        self.window: _Window | None = None  # in which it was asked for
        self.counted: _Window | None = None  # in which it counts as being ahead of its run
        self.begun = False  # whether it was asked for
        self.leaving = False  # whether it is given back, or is not waited for any more
        self.over = False
        self._on_ended: list[Callable[[], object]] = []
        # Written on the loop of the bridge, once; read from any thread.
        self.held: Lease | None = None
        # Confined to the loop of the state.
        self._previous = previous
        self._task: asyncio.Task[BaseException | None] | None = None
        self._holds = False
        self._to_end = False
        self._end_requested: asyncio.Event | None = None
        self._finished: asyncio.Event | None = None
        self._has_finished = False

    @property
    def lost(self) -> bool:
        """Whether another process may have the thread by now. Any thread; never blocks."""
        return self.held is None or self.held.lost

    @property
    def remaining(self) -> float:
        """Seconds until it is lost, unless it is renewed; 0 if it is. Any thread; never blocks."""
        return 0.0 if self.held is None else self.held.remaining

    def check(self) -> None:
        """Raise LaneLostError if the lease is `lost`. Any thread; never blocks."""
        if self.lost:
            raise self.lost_error(None)

    def lost_error(self, cause: BaseException | None) -> LaneLostError:
        """Make the error of a run whose lease is lost. Any thread; never blocks."""
        error = LaneLostError(
            f"the lease of the thread {self.thread_id!r} is lost: it was not renewed within "
            f"{self._lanes.ttl} s, because its store did not answer, or this process or a loop "
            "was suspended or blocked. Another process may have the thread, so this run was "
            "cancelled and saves nothing more; send its message again"
        )
        error.__cause__ = cause
        return error

    # -- on the loop of the bridge ---------------------------------------------------------------

    def serves_next(self) -> bool:
        """Whether the next run of this bridge may have it (rule 1)."""
        return not (self.lost or self.wanted or self.leaving or self.over)

    def predecessor(self) -> ThreadLease | None:
        """What the next lease of this bridge on the thread has to wait for."""
        return self if self.begun else self._previous

    def begin(self) -> None:
        """Ask for it, on the loop of the state."""
        self.begun = True
        self._on_state_loop(self._begin)

    def give_back(self) -> None:
        """Give it back, or stop waiting for it."""
        if not self.leaving and not self.over:
            self.leaving = True
            self.run = None
            if self.begun:
                self._on_state_loop(self._end)
            else:
                self._lanes.ended(self, None)

    def holds_back(self, callback: Callable[[], object]) -> bool:
        """Whether a run has to wait until it was given back (rule 5); ``callback`` is called then.

        If not, ``callback`` is not called at all.
        """
        if self._lanes.closed or self.over or not self.leaving:
            return False
        self._on_ended.append(callback)
        return True

    def end(self) -> None:
        """Note that it is over."""
        self.over = True
        callbacks, self._on_ended = self._on_ended, []
        for callback in callbacks:
            callback()

    def _on_state_loop(self, call: Callable[[], None]) -> None:
        loop = self._lanes.state.loop
        try:
            check_reachable(loop)
            loop.call_soon_threadsafe(call, context=Context())  # and not that of the run
        except (LoopUnavailableError, RuntimeError) as error:
            why: RxLangGraphError = (
                error
                if isinstance(error, LoopUnavailableError)
                else LoopUnavailableError(f"the event loop {loop!r} of the state is closed")
            )
            # Not at once: the caller has not finished with the run.
            self._tell(self._lanes.ended, self, why)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call ``call`` on the loop of the bridge, soon. Any thread."""
        loop = self._lanes.loop
        assert loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: nothing waits there
            loop.call_soon_threadsafe(call, *arguments, context=Context())

    # -- on the loop of the state ----------------------------------------------------------------

    def _begin(self) -> None:
        self._end_requested = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._hold(), name=f"lease of thread {self.thread_id}"
        )
        # Also if it is cancelled before its first step.
        self._task.add_done_callback(self._task_ended)

    def _end(self) -> None:
        self._to_end = True
        if self._end_requested is None:
            return  # it has not begun
        self._end_requested.set()
        if not self._holds and self._task is not None:
            self._task.cancel()

    def _task_ended(self, task: asyncio.Task[BaseException | None]) -> None:
        error = _cancelled() if task.cancelled() else task.result()
        if self._to_end:
            if error is not None and not isinstance(error, LeaseLostError | LoopUnavailableError):
                _log.warning(
                    "the lease of the thread %r could not be given back, and ends in %s s: %s",
                    self.thread_id,
                    self._lanes.ttl,
                    error,
                )
            error = None
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        self._has_finished = True
        if self._finished is not None:
            self._finished.set()
        self._previous = None
        self._tell(self._lanes.ended, self, error)

    async def _hold(self) -> BaseException | None:
        """Get the lease and keep it; return why it has ended, if not because it was to."""
        try:
            if self._previous is not None:
                await self._previous._until_finished()
            async with contextlib.AsyncExitStack() as stack:
                held = await self._acquire(stack)
                self._holds = True
                self._tell(self._lanes.granted, self, held)
                await self._until_end(held)
        except asyncio.CancelledError:
            return _cancelled()
        except Exception as error:
            return error
        return None

    async def _until_finished(self) -> None:
        if not self._has_finished:
            if self._finished is None:
                self._finished = asyncio.Event()
            await self._finished.wait()

    async def _until_end(self, held: Lease) -> None:
        assert self._end_requested is not None
        while not await _is_set(self._end_requested, _LOOK_EVERY):
            held.check()
            with contextlib.suppress(StateError):
                note = await self._note_of_another()
                if note is not None:
                    self._tell(self._lanes.noticed, self, note.get("interrupt"))

    async def _acquire(self, stack: contextlib.AsyncExitStack) -> Lease:
        if await self._note_of_another() is not None:
            if not self._patient:
                raise self._busy()
            self._tell(self._lanes.parked, self)
            await asyncio.sleep(_DEFERENCE)
        state, key, ttl = self._lanes.state, _key("lane", self.thread_id), self._lanes.ttl
        wait = 0.0
        async with contextlib.AsyncExitStack() as note:
            while True:
                try:
                    return await stack.enter_async_context(state.lock(key, ttl, wait=wait))
                except LockTimeoutError:
                    if not self._patient:
                        raise self._busy() from None
                if not wait:
                    wait = _RENEW_NOTE
                    self._tell(self._lanes.parked, self)
                    note.push_async_callback(self._remove_note)
                await self._leave_note()

    def _busy(self) -> ThreadBusyError:
        return ThreadBusyError(
            f"another process has the thread {self.thread_id!r}, or waits for it; send the message "
            "again later, or with multitask_strategy='enqueue' or 'interrupt' (only the process "
            "of a run can roll it back)"
        )

    # -- notes -----------------------------------------------------------------------------------

    @property
    def _note_key(self) -> str:
        return _key("lane-wanted", self.thread_id)

    async def _note_of_another(self) -> dict[str, Any] | None:
        note = (await self._lanes.state.get(self._note_key)).value
        return note if isinstance(note, dict) and note.get("by") != self._lanes.owner else None

    async def _leave_note(self) -> None:
        if self._interrupts is None:
            other = await self._note_of_another()
            if other is not None and other.get("interrupt") is not None:
                return  # that one says more, and the holder has to see only one of them
        note = {"by": self._lanes.owner, "interrupt": self._interrupts}
        await self._lanes.state.set(self._note_key, note, ttl=_NOTE_TTL)

    async def _remove_note(self) -> None:
        with contextlib.suppress(StateError, ClosedError):  # it expires
            found = await self._lanes.state.get(self._note_key)
            if isinstance(found.value, dict) and found.value.get("by") == self._lanes.owner:
                await self._lanes.state.delete(self._note_key)


def _cancelled() -> LoopUnavailableError:
    return LoopUnavailableError(
        "the event loop of the state of the lanes has ended; close the bridge before the state"
    )


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _key(prefix: str, thread_id: str) -> str:
    """The key of a thread in the store. Any string may be a thread_id, and not any a key."""
    key = f"{prefix}:{thread_id}"
    try:
        return check_identifier("key", key)
    except InvalidArgumentError:
        digest = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{prefix}-sha256:{digest}"
