"""A provider of models on a real HTTP server, which refuses what exceeds its limits.

Its time is given: that of a bridge in virtual time, so that an hour of limits takes a moment.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.concurrency.waiting import LIMIT

__all__ = ["EPOCH", "Bucket", "FixedWindow", "Provider", "SlidingWindow"]

# Where the virtual time begins for what is a date: 2026-11-24T12:00:00Z.
EPOCH = 1_795_521_600.0


class SlidingWindow:
    """At most ``limit`` in any ``per`` seconds."""

    def __init__(self, limit: int, per: float) -> None:
        self.limit, self.per = limit, per
        self._used: deque[tuple[float, int]] = deque()

    def wait_for(self, amount: int, now: float) -> float:
        """0 if ``amount`` may be used now, else the seconds until then."""
        while self._used and self._used[0][0] <= now - self.per:
            self._used.popleft()
        excess = sum(used for _, used in self._used) + amount - self.limit
        for time, used in self._used:
            if excess <= 0:
                break
            excess -= used
            wait = time + self.per - now
            if excess <= 0:
                return wait
        return 0.0

    def use(self, amount: int, now: float) -> None:
        self._used.append((now, amount))


class FixedWindow(SlidingWindow):
    """At most ``limit`` in each period of ``per`` seconds, from 0 on."""

    def wait_for(self, amount: int, now: float) -> float:
        period = now // self.per
        used = sum(used for time, used in self._used if time // self.per == period)
        return 0.0 if used + amount <= self.limit else (period + 1) * self.per - now


class Bucket(SlidingWindow):
    """A bucket with room for ``limit``, refilled evenly."""

    def __init__(self, limit: int, per: float) -> None:
        super().__init__(limit, per)
        self._level, self._time = float(limit), 0.0

    def wait_for(self, amount: int, now: float) -> float:
        self._level = min(
            float(self.limit), self._level + (now - self._time) * self.limit / self.per
        )
        self._time = now
        return max(0.0, (amount - self._level - 1e-6) * self.per / self.limit)

    def use(self, amount: int, now: float) -> None:
        self._level -= amount


class Provider:
    """Answers ``POST`` of ``{"key", "tokens", "prompt"}``.

    Args:
        now: Returns its time.
        requests: How many requests it allows, for each key.
        tokens: How many tokens.
        kind: How it counts.
        per: Seconds of its limits.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        requests: int | None = None,
        tokens: int | None = None,
        kind: type[SlidingWindow] = SlidingWindow,
        per: float = 60.0,
    ) -> None:
        self.now = now
        self._new = {
            "requests": lambda: None if requests is None else kind(requests, per),
            "tokens": lambda: None if tokens is None else kind(tokens, per),
        }
        self._lock = threading.Condition()
        self._windows: dict[str, dict[str, SlidingWindow | None]] = {}
        # What it is to say next, to the calls with each key: a status, and headers.
        self.script: dict[str, deque[tuple[int, dict[str, str]]]] = {}
        # What it was asked, and how it answered: a key, its time, a status.
        self.log: list[tuple[str, float, int]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, headers, answer = provider.answer(asked)
                body = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # so that closing waits for them
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, str], dict[str, Any]]:
        """The status, headers and body for one request."""
        key, now = asked["key"], self.now()
        with self._lock:
            status, headers = self._decide(key, int(asked["tokens"]), now)
            self.log.append((key, now, status))
            self._lock.notify_all()
        if status != 200:
            return status, headers, {"error": status}
        prompt = int(asked["prompt"])
        return status, headers, {"prompt": prompt, "answer": int(asked["tokens"]) - prompt}

    def _decide(self, key: str, tokens: int, now: float) -> tuple[int, dict[str, str]]:
        script = self.script.get(key)
        if script:
            return script.popleft()
        windows = self._windows.get(key)
        if windows is None:
            windows = self._windows[key] = {name: new() for name, new in self._new.items()}
        amounts = {"requests": 1, "tokens": tokens}
        waits = [window.wait_for(amounts[name], now) for name, window in windows.items() if window]
        wait = max(waits, default=0.0)
        if wait > 0:
            return 429, {"retry-after": str(int(wait) + 1)}
        for name, window in windows.items():
            if window:
                window.use(amounts[name], now)
        return 200, {}

    def wait_for(self, count: int) -> None:
        """Return when it was asked so often."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.log) >= count, LIMIT), self.log

    def statuses(self, key: str | None = None) -> list[int]:
        return [status for name, _, status in self.log if key in (None, name)]

    def times(self, key: str | None = None) -> list[float]:
        """When it was asked."""
        return [time for name, time, _ in self.log if key in (None, name)]
