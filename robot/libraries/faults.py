"""Keywords that have a crew of workers killed, paused and left without a server while they work.

A worker is a small program that tells of each step on a pipe (programs/telling.py). What was told
says how far the work is: each fault strikes when so many items are done, a number that was drawn
beforehand; a pause lasts for longer than a lease. The seed of it all is printed, and can be given
as RXLANGGRAPH_ROBOT_SEED. What it does not decide is which step a worker is at by then.
"""

from __future__ import annotations

import os
import random
import select
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic

from processes import Running
from robot.api import logger
from robot.libraries.BuiltIn import BuiltIn
from stores import Store

# How long a pause lasts, in leases of state_worker.py, which are 1 second.
PAUSE = (1.3, 2.5)
# Seconds between two looks at whether all workers are alive.
LOOK = 0.2


@dataclass
class Told:
    """What workers have told.

    Attributes:
        begun: The process ids of those that were ready to work.
        done: Item and token of each completion that was acknowledged.
        counted: What each increment of the counter was answered with.
        happened: How often a worker was refused, or had no answer; and how often each fault struck.
    """

    begun: set[int] = field(default_factory=set)
    done: list[tuple[int, int]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    def hear(self, line: str) -> None:
        event, *numbers = line.split()
        if event == "done":
            item, token = map(int, numbers)
            self.done.append((item, token))
        elif event == "begun":
            self.begun.add(int(numbers[0]))
        elif event == "counted":
            self.counted.append(int(numbers[0]))
        else:
            self.happened[event] += 1


class Pipe:
    """The reading end of a named pipe. Confined to one thread.

    Open for writing too, so that it does not end when no other process has it open.
    """

    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def lines(self, timeout: float) -> list[str]:
        """Return what has come, whole lines only; wait for some for so many seconds at most."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return []
        *lines, self._rest = (self._rest + os.read(self._descriptor, 65536)).split(b"\n")
        return [line.decode() for line in lines]

    def close(self) -> None:
        os.close(self._descriptor)


class Plan:
    """What is to happen, and when; drawn from a seed.

    Attributes:
        chance: Decides what is not decided yet: which worker is hit, and how long a pause lasts.
        left: What has not happened yet, each with how many items are done by then.
    """

    def __init__(self, items: int, **times: int) -> None:
        seed = os.environ.get("RXLANGGRAPH_ROBOT_SEED") or os.urandom(4).hex()
        self.chance = random.Random(seed)
        kinds = [kind for kind, count in times.items() for _ in range(count)]
        self.chance.shuffle(kinds)
        # Not at the very beginning nor end: while all workers are at work.
        moments = sorted(self.chance.sample(range(items // 50, items * 9 // 10), len(kinds)))
        self.left = list(zip(moments, kinds, strict=True))
        logger.info(f"RXLANGGRAPH_ROBOT_SEED={seed}", also_console=True)
        logger.info(f"when so many items are done: {self.left}")

    def due(self, done: int) -> Iterator[str]:
        """What happens now, with so many items done."""
        while self.left and self.left[0][0] <= done:
            yield self.left.pop(0)[1]


class Crew:
    """Workers on the same work, and what is done to them. Confined to one thread.

    Args:
        workers: How many there are; for each that is killed another one starts.
        start: Starts a worker.
        restart: Restarts the server, and returns when it answers again.
        plan: What happens to them.
    """

    def __init__(
        self, workers: int, start: Callable[[], Running], restart: Callable[[], None], plan: Plan
    ) -> None:
        self.told = Told()
        self._start = start
        self._restart = restart
        self._plan = plan
        self._workers = [start() for _ in range(workers)]
        # Those that are paused, and when each goes on.
        self._paused: list[tuple[float, Running]] = []

    def work(self, pipe: Pipe) -> None:
        """Let them work, and tell, until all have ended by themselves."""
        while self._workers:
            for line in pipe.lines(LOOK):
                self.told.hear(line)
            for fault in self._plan.due(len(self.told.done)):
                self._strike(fault)
            self._wake_up()
            self._workers = [worker for worker in self._workers if not _has_ended(worker)]
        for line in pipe.lines(0):
            self.told.hear(line)
        assert not self._plan.left, f"the work was done before this happened: {self._plan.left}"

    def _strike(self, fault: str) -> None:
        self.told.happened[fault] += 1
        if fault == "restart":
            self._restart()
            return
        at_work = [worker for worker in self._workers if worker.popen.pid in self.told.begun]
        worker = self._plan.chance.choice(at_work or self._workers)
        if fault == "kill":
            worker.popen.kill()
            worker.popen.wait()
            self._workers.remove(worker)
            self._workers.append(self._start())
        else:
            worker.popen.send_signal(signal.SIGSTOP)
            self._paused.append((monotonic() + self._plan.chance.uniform(*PAUSE), worker))

    def _wake_up(self) -> None:
        now = monotonic()
        for due, worker in self._paused:
            if due <= now:
                worker.popen.send_signal(signal.SIGCONT)
        self._paused = [(due, worker) for due, worker in self._paused if due > now]


def _has_ended(worker: Running) -> bool:
    status = worker.popen.poll()
    if status:
        assert worker.err is not None
        raise AssertionError(f"a worker ended with status {status}:\n{worker.err.text()}")
    return status == 0


class faults:
    """The library; a new one for each test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def work_under_faults(
        self, program: str, store: Store, items: int, workers: int, **times: int
    ) -> Told:
        """Have so many workers do the items; return what they have told.

        ``times`` says how often each fault strikes: ``kill``, ``pause``, ``restart``.
        """
        processes = BuiltIn().get_library_instance("processes")
        path = processes.in_the_folder("told")

        def start() -> Running:
            worker: Running = processes.start_program(program, store.url, path, measured=False)
            return worker

        with closing(Pipe(path)) as pipe:
            crew = Crew(workers, start, store.restart, Plan(items, **times))
            crew.work(pipe)
        logger.info(f"what happened: {dict(crew.told.happened)}", also_console=True)
        return crew.told
