"""The screen of `rxlanggraph top`: without a terminal, and in a real one."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pyte

from rxlanggraph.cli.top.screen import TopApp
from support.cli import command
from support.concurrency.waiting import LIMIT

__all__ = ["Screen", "Terminal"]


class _Told:
    """What is looked at, which tells when the screen has taken an update."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.taken = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)

    async def updates(self) -> Any:
        async with contextlib.aclosing(self._watch.updates()) as updates:
            async for update in updates:
                yield update
                self.taken.set()


class Screen:
    """A screen without a terminal, on a loop of its own that runs while a step waits for it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self.app: Any = None

    def run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(LIMIT):
                return await work

        return self.runner.run(bounded())

    def enter(self, manager: Any) -> Any:
        """Enter a context manager, until the end."""
        return self.run(self._stack.enter_async_context(manager))

    def look(self, watch: Any, size: tuple[int, int] = (80, 24)) -> None:
        """Look at it."""
        self._told = _Told(watch)
        self.app = TopApp(self._told, self.run(watch.snapshot()))
        self._pilot = self.enter(self.app.run_test(size=size))

    def press(self, *keys: str) -> None:
        """Press keys, and wait until what they have started is done."""
        self.run(self._press(keys))

    async def _press(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            await self._pilot.press(key)
        # An action that asks something waits for the next keys.
        if len(self.app.screen_stack) == 1:
            await self._settle()

    async def _settle(self) -> None:
        for worker in list(self.app.workers):
            if worker.name != "_follow":
                await worker.wait()
        if self.app.is_running:
            await self._pilot.pause()

    def settle(self) -> None:
        """Wait until what keys have started is done."""
        self.run(self._settle())

    def until(self, is_so: Callable[[str], bool]) -> str:
        """The text of the screen, once an update has made something so."""
        return str(self.run(self._until(is_so)))

    async def _until(self, is_so: Callable[[str], bool]) -> str:
        while True:
            self._told.taken.clear()
            await self._pilot.pause()
            text = self.text()
            if is_so(text):
                return text
            try:
                await self._told.taken.wait()
            except TimeoutError:
                raise AssertionError(text) from None

    def shows(self, *texts: str) -> str:
        """The text of the screen, once all of these are on it."""
        return self.until(lambda text: all(each in text for each in texts))

    def text(self) -> str:
        """What is on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)

    def result(self) -> Any:
        """What the screen has returned, once it has ended."""
        return self.run(self._result())

    async def _result(self) -> Any:
        while self.app.is_running:
            await self._pilot.pause()
        return self.app.return_value

    def close(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self.runner.close()


class Terminal:
    """A command in a real terminal, of 80 by 24."""

    def __init__(self, line: str, folder: Path) -> None:
        self._controller, terminal = pty.openpty()
        self._closing = contextlib.ExitStack()
        self._closing.callback(os.close, self._controller)
        self._closing.callback(os.close, terminal)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._terminal = terminal
        self.before = termios.tcgetattr(terminal)
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._process = subprocess.Popen(
            [*command.COMMAND, *command.arguments(line)],
            cwd=folder,
            env={**command.environment(measured=True), "TERM": "xterm-256color"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )

    @property
    def after(self) -> Any:
        return termios.tcgetattr(self._terminal)

    def until(self, text: str) -> None:
        """Read what the command writes until a text is on the screen."""
        end = monotonic() + LIMIT
        while not any(text in line for line in self._screen.display):
            assert self._read(end), "\n".join(self._screen.display)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._controller], [], [], max(0.0, end - monotonic()))
        if ready:
            data = os.read(self._controller, 65536)
            self.raw += data
            self._stream.feed(data)
        return bool(ready)

    def press(self, keys: str) -> None:
        os.write(self._controller, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit status; what is written is read, or the command would wait for that."""
        end = monotonic() + LIMIT
        while self._process.poll() is None:
            assert monotonic() < end, "\n".join(self._screen.display)
            self._read(min(end, monotonic() + 0.05))
        while self._read(0.0):
            pass
        return self._process.returncode

    def wait_unread(self) -> int:
        """The exit status; nothing is read meanwhile."""
        return self._process.wait(LIMIT)

    def signal_until_ended(self, number: signal.Signals) -> int:
        """Send a signal again and again; nothing is read meanwhile."""
        end = monotonic() + LIMIT
        while monotonic() < end:
            self.signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(1)
        raise AssertionError(f"{number.name} does not end it")

    def suspend_output(self) -> None:
        """Have the terminal take no output, as after Ctrl-S."""
        termios.tcflow(self._terminal, termios.TCOOFF)

    def hang_up(self) -> None:
        """Close the terminal's other side, as a terminal emulator that is closed does."""
        self._closing.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT)
        self._closing.close()
