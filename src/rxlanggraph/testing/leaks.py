"""LeakCheck: finds what a pipeline left behind, for the tests of pipelines built with this package.

    with LeakCheck():
        with RxPyLangGraphBridge() as bridge:
            ...

It finds, if they appeared after the check began: threads, child processes, unfinished asyncio
tasks, coroutines that were never awaited, entries of any `TaskRegistry`, and errors that were only
printed (by a thread, by a finalizer, by asyncio's logger).

Tasks, coroutines and registries are found in the garbage collector's list of objects:
``asyncio.all_tasks`` needs the loops, and the test has no reference to a leaked loop. Its cost
grows with the number of objects; ``gc.freeze()`` after all imports excludes those.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic, sleep
from typing import Any, Literal, Self, TypeVar

from rxlanggraph.concurrency.stacks import format_frames, format_task, frame_of
from rxlanggraph.errors import InvalidTypeError, RxLangGraphError, UsageError
from rxlanggraph.registry import TaskRegistry
from rxlanggraph.testing.child_processes import describe, pids
from rxlanggraph.validation import check_seconds

__all__ = ["IGNORED", "Leak", "LeakCheck", "LeakError", "LeakKind"]

_T = TypeVar("_T")
# How often, in seconds, a thread that is being started is looked at.
_STARTING = 0.001

LeakKind = Literal["thread", "process", "task", "coroutine", "registry entry", "unhandled error"]

IGNORED: tuple[str, ...] = (
    "*(tqdm.*",  # its one monitor thread serves every later progress bar
    "*_tracing_*thread_func*",  # lives as long as its LangSmith client
    "langsmith-*",
    "*(threading._DummyThread)",  # not started by Python, so it cannot be ended or joined
    "*multiprocessing.resource_tracker*",  # one per process, made to outlive its users
    "*multiprocessing.forkserver*",
)
"""Names that no check reports: of threads and processes that other libraries keep running."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A thread, process, task or the like that was left behind.

    Attributes:
        kind: Its kind.
        name: Its name, which is matched with the patterns of `LeakCheck`.
        detail: Its stack, state or traceback. May be empty.
    """

    kind: LeakKind
    name: str
    detail: str = ""

    def __str__(self) -> str:
        """Return kind and name in one line, and the detail indented below."""
        lines = [f"{self.kind}: {self.name}", *self.detail.splitlines()]
        return "\n    ".join(lines)


class LeakError(RxLangGraphError, AssertionError):
    """A check has found leaks; an ``AssertionError``, so that test runners report a failure.

    Attributes:
        leaks: The leaks.
    """

    def __init__(self, leaks: tuple[Leak, ...]) -> None:
        """Make the error that reports ``leaks``."""
        self.leaks = leaks
        found = "\n".join(f"- {leak}" for leak in leaks)
        super().__init__(
            f"{len(leaks)} left behind; close, join or await each, or add its name to "
            f"LeakCheck(ignore=...):\n{found}"
        )


class LeakCheck:
    """Finds what appears between `start` and `verify` and does not end; also a context manager.

    One check at a time per process, or nested: meanwhile it replaces ``sys.unraisablehook`` and
    ``threading.excepthook``, and adds a handler to asyncio's logger; the original ones are still
    called. The first check makes "coroutine ... was never awaited" an error for the rest of the
    process, whatever the warning filters: by default Python shows it only once per line of code.

    If the body of the ``with`` block raises, that error propagates, with the leaks as a note.
    """

    def __init__(self, *, timeout: float = 5.0, ignore: Iterable[str] = ()) -> None:
        """Make a check that has not started. Any thread; never blocks.

        Args:
            timeout: Seconds that `verify` waits, altogether, for what is about to end.
            ignore: Shell patterns (``fnmatch``) of names that are not leaks, besides `IGNORED`. The
                name of a thread of a subclass includes that class:
                ``"Thread-3 (tqdm._monitor.TMonitor)"``. The name of a process is its command line.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number of seconds.
            InvalidTypeError: ``ignore`` is a single string, of which every character would count
                as a pattern.
        """
        check_seconds("timeout", timeout)
        if isinstance(ignore, str):
            raise InvalidTypeError(f"ignore must be a list of patterns, not {ignore!r}")
        self._timeout = timeout
        self._ignore = (*IGNORED, *ignore)
        # All but the last field are confined to the thread that starts and verifies.
        self._threads: set[threading.Thread] = set()
        self._processes: set[int] = set()
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._coroutines: weakref.WeakSet[types.CoroutineType[Any, Any, Any]] = weakref.WeakSet()
        self._entries: dict[TaskRegistry, set[int]] = {}
        self._release: Callable[[], None] | None = None
        # Any thread appends to it, even in a finalizer: list.append is atomic, on free-threaded
        # CPython too.
        self._unhandled: list[Leak] = []

    def start(self) -> Self:
        """Record what exists now, which is not reported as a leak. Never blocks.

        Any thread, but no other one may use the same check at that time.

        Raises:
            UsageError: It has started already.
        """
        if self._release is not None:
            raise UsageError("this LeakCheck has started already; make one for each test")
        gc.collect()  # coroutines that earlier code left unawaited are reported before the check
        self._threads = set(threading.enumerate())
        self._processes = set(pids())
        self._tasks.update(_alive(asyncio.Task))
        self._coroutines.update(_alive(types.CoroutineType))
        self._entries = {
            registry: {info.id for info in registry.snapshot()} for registry in _alive(TaskRegistry)
        }
        self._release = _listen(self._unhandled.append)
        return self

    def verify(self) -> None:
        """End the check, wait for what is about to end, and raise an error about the rest.

        Any thread, but no other one may use the same check at that time. Blocks for up to
        ``timeout`` seconds, and not at all if all has ended. On the thread of an event loop, it
        does not wait for the tasks of that loop.

        Raises:
            LeakError: There are leaks that are not ignored. The error lists them all.
            UsageError: `start` was not called, or this was called already.
        """
        if leaks := self.find():
            raise LeakError(leaks)

    def find(self) -> tuple[Leak, ...]:
        """End the check as `verify` does, and return the leaks instead of raising.

        Raises:
            UsageError: `start` was not called, or this was called already.
        """
        if self._release is None:
            raise UsageError("this LeakCheck is not running; call start() before verify()")
        deadline = monotonic() + self._timeout
        gc.collect()  # a pool that only a cycle keeps alive now ends its threads
        leaks = [*self._left_threads(deadline), *self._left_processes()]
        leaks += self._left_tasks(deadline)
        leaks += self._left_entries(deadline)
        gc.collect()  # objects that the ended threads dropped may report errors
        leaks += self._left_coroutines()
        self._release()
        self._release = None
        leaks += self._unhandled
        return tuple(leak for leak in leaks if not self._ignored(leak.name))

    def __enter__(self) -> Self:
        """Call `start`."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Call `verify`; if the block has raised, add the leaks to that error as a note."""
        if error is None:
            self.verify()
        elif leaks := self.find():
            error.add_note(str(LeakError(leaks)))

    def _ignored(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._ignore)

    def _left_threads(self, deadline: float) -> Iterator[Leak]:
        for thread in set(threading.enumerate()) - self._threads - {threading.current_thread()}:
            name = _name_of(thread)
            if self._ignored(name):
                continue
            if _ends(thread, deadline):
                continue
            frame = frame_of(thread.ident)
            yield Leak("thread", name, format_frames([frame]) if frame else "")

    def _left_processes(self) -> Iterator[Leak]:
        for pid in pids():
            if pid not in self._processes:
                yield Leak("process", *describe(pid))

    def _left_tasks(self, deadline: float) -> Iterator[Leak]:
        for task in _alive(asyncio.Task):
            if task in self._tasks or task.done():
                continue
            _wait_for_task(task, deadline)
            if not task.done():
                yield Leak("task", repr(task), format_task(task, None))

    def _left_entries(self, deadline: float) -> Iterator[Leak]:
        on_loop = asyncio._get_running_loop() is not None
        for registry in _alive(TaskRegistry):
            before = self._entries.get(registry, set())
            if before >= {info.id for info in registry.snapshot()}:
                continue
            registry.wait_idle(0 if on_loop else max(0.0, deadline - monotonic()))
            new = [info for info in registry.snapshot() if info.id not in before]
            for info in new:
                yield Leak("registry entry", info.name or str(info.id), repr(info))

    def _left_coroutines(self) -> Iterator[Leak]:
        # The coroutine of a task that has not begun looks the same; the task is reported instead.
        owned = {task.get_coro() for task in _alive(asyncio.Task) if not task.done()}
        for coroutine in _alive(types.CoroutineType):
            unawaited = inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
            if unawaited and coroutine not in self._coroutines and coroutine not in owned:
                yield Leak("coroutine", coroutine.__qualname__, "neither awaited nor closed")


def _alive(kind: type[_T]) -> list[_T]:
    # type() and not isinstance(), which would read the __class__ of proxies and so initialize them.
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]


def _name_of(thread: threading.Thread) -> str:
    cls = type(thread)
    if cls is threading.Thread:
        return thread.name
    return f"{thread.name} ({cls.__module__}.{cls.__qualname__})"


def _ends(thread: threading.Thread, deadline: float) -> bool:
    """Wait until ``thread`` has ended; False if it has not by then."""
    while True:
        left = max(0.0, deadline - monotonic())
        try:
            thread.join(left)
        except RuntimeError:  # another thread is starting it just now
            if not left:
                return False
            sleep(min(left, _STARTING))
        else:
            return not thread.is_alive()


def _wait_for_task(task: asyncio.Task[Any], deadline: float) -> None:
    loop = task.get_loop()
    if not loop.is_running() or loop is asyncio._get_running_loop():
        return
    ended = threading.Event()
    with contextlib.suppress(RuntimeError):  # the loop was closed just now: the task cannot end
        loop.call_soon_threadsafe(task.add_done_callback, lambda _: ended.set())
        ended.wait(max(0.0, deadline - monotonic()))


class _Listener(logging.Handler):
    """Reports the errors that asyncio logs: exceptions never retrieved, pending tasks destroyed."""

    def __init__(self, report: Callable[[Leak], object]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._report(Leak("unhandled error", record.getMessage(), repr(error) if error else ""))


def _listen(report: Callable[[Leak], object]) -> Callable[[], None]:
    """Report errors that are printed and not raised, until the returned function is called."""
    warnings.filterwarnings("error", "coroutine .* was never awaited", RuntimeWarning)
    # Only text is stored, as the documentation of the hooks requires: objects would be resurrected.
    unraisable, in_thread = sys.unraisablehook, threading.excepthook

    def on_unraisable(args: sys.UnraisableHookArgs) -> None:
        where = args.err_msg or "Exception ignored in"
        if args.object is not None:  # from Python 3.14 on, the message may include it instead
            where += f": {args.object!r}"
        report(Leak("unhandled error", repr(args.exc_value), where))
        unraisable(args)

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "a thread that is gone"
        report(Leak("unhandled error", repr(args.exc_value), f"ended {name}"))
        in_thread(args)

    listener = _Listener(report)
    logger = logging.getLogger("asyncio")

    def release() -> None:
        sys.unraisablehook, threading.excepthook = unraisable, in_thread
        logger.removeHandler(listener)

    logger.addHandler(listener)
    sys.unraisablehook, threading.excepthook = on_unraisable, on_thread_error
    return release
