"""The web service in a process of its own, with a database; its model waits for a line of input.

python -m support.web.process DATABASE GRACEFUL_SECONDS
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from support.cli.examples import example_of
from support.concurrency.waiting import LIMIT, Log
from support.web.speaker import Speaker

__all__ = ["TOKENS", "ServiceProcess"]

FEATURES = Path(__file__).parents[2]
TOKENS = 20
WAITS_BEFORE = 3


class ServiceProcess:
    """Such a process. It is killed at the end, if it has not ended."""

    def __init__(self, database: str, graceful: float) -> None:
        self.database = database
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.web.process", database, str(graceful)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Written by the thread that reads the log, until its end: then None.
        self._log: queue.Queue[str | None] = queue.Queue()
        self._reading = threading.Thread(target=self._read_log, daemon=True)
        self._reading.start()
        assert self._process.stdout is not None
        try:
            self.url = self._process.stdout.readline().strip()
            self.wait_for_log("Application startup complete")
        except BaseException:
            self.end()
            raise

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.put(line)
        self._log.put(None)

    def wait_for_log(self, text: str) -> None:
        seen = []
        while (line := self._log.get(timeout=LIMIT)) is not None:
            seen.append(line)
            if text in line:
                return
        raise AssertionError(f"it has ended without saying {text!r}: {seen}")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        return self._process.wait(LIMIT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join(LIMIT)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def said(self, thread: str) -> str:
        """What the database has as the last message of ``thread``."""

        async def read() -> str:
            with example_of("web_service") as example:
                async with AsyncSqliteSaver.from_conn_string(self.database) as saver:
                    config: Any = {"configurable": {"thread_id": thread}}
                    state = await example.build(saver).aget_state(config)
                    return str(state.values["messages"][-1].content)

        return asyncio.run(read())


class _Input:
    """A gate that a line of input opens."""

    async def wait_async(self) -> None:
        await asyncio.to_thread(sys.stdin.readline)


def main(database: str, graceful: str) -> None:
    import uvicorn

    with example_of("web_service") as example:

        @contextlib.asynccontextmanager
        async def open_graph() -> AsyncIterator[Any]:
            speaker = Speaker(tokens=TOKENS, about_to=Log(), gates={WAITS_BEFORE: _Input()})
            async with AsyncSqliteSaver.from_conn_string(database) as saver:
                yield example.build(saver, lambda _: speaker)

        options: Any = {"http": "h11", "ws": "none", "timeout_graceful_shutdown": float(graceful)}
        config = uvicorn.Config(example.make_app(open_graph), **options)
        listener = socket.create_server(("127.0.0.1", 0))
        print("http://127.0.0.1:{1}".format(*listener.getsockname()), flush=True)
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
