"""RemotePage: a live page, read over HTTP.

A lost connection is opened again, after pauses that grow. Where another attempt would not help (a
wrong token, a host by another name, no page at all), an error is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Self

import httpx

from rxlanggraph.cli.errors import LiveError
from rxlanggraph.cli.passwords import LIVE_TOKEN
from rxlanggraph.cli.top.watch import Ended, Lost, Update
from rxlanggraph.errors import InvalidArgumentError, MissingExtraError
from rxlanggraph.live.schema import VERSION, Snapshot
from rxlanggraph.live.source import Answered
from rxlanggraph.validation import check_secret, is_loopback

try:
    from httpx_sse import EventSource, SSEError
except ImportError as error:
    raise MissingExtraError(
        "reading a live page needs httpx-sse; install it with pip install 'rxlanggraph[live]'"
    ) from error

__all__ = ["RemotePage", "UnreachableError"]

# Seconds: to connect, and for a request; without a sign of life, of which the server sends one
# every 15; between two attempts, at most. Guesses.
_REQUEST_SECONDS = 10.0
_SILENT_SECONDS = 40.0
_LONGEST_PAUSE = 30.0
_REMEDIES: Final = {
    401: "it refuses this token, which is new for each run: use the address that the run printed "
    "last",
    403: "it refuses requests from here: connect to it directly",
    421: "it is not known by this name: use 127.0.0.1, or allow the name with allowed_hosts",
}


class UnreachableError(LiveError):
    """The page does not answer at present."""


class RemotePage:
    """A live page, as a `Watch`, for the length of an ``async with`` block. One loop.

    Args:
        address: The address of the page; it may have the token, as it is printed.
        token: The token, if it is not in the address.
        pause: Sleeps for so many seconds.

    Raises:
        LiveError: It is not such an address, or there is no token.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.place, host, token = _parsed(address, token)
        self._pause = pause
        self._client = httpx.AsyncClient(
            base_url=self.place,
            headers={"authorization": f"Bearer {token}"},
            timeout=_REQUEST_SECONDS,
            # A proxy does not reach this machine, and is not to see the token.
            trust_env=not is_loopback(host),
        )

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def snapshot(self) -> Snapshot:
        """Ask for a snapshot.

        Raises:
            LiveError: There is no page, it refuses this client, or it does not answer.
        """
        return self._checked((await self._send("GET", "api/snapshot")).text)

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Listen to the page, and connect again when the connection is lost.

        Raises:
            LiveError: Another attempt would not help.
        """
        failures = 0
        while True:
            reason = "the connection has ended"
            try:
                async with contextlib.aclosing(self._listen()) as events:
                    async for name, data in events:
                        failures = 0
                        if name == "end":
                            yield Ended(_reason(data))
                            return
                        if name == "snapshot":
                            yield self._checked(data)
            except UnreachableError as error:
                reason = str(error)
            seconds = min(_LONGEST_PAUSE, 2.0 ** min(failures, 10) / 2)
            failures += 1
            yield Lost(reason, seconds)
            await self._pause(seconds)

    async def stack(self, run_id: int) -> str | None:
        """Return the current stack of a run; None if it is not in flight.

        Raises:
            LiveError: As for `snapshot`.
        """
        response = await self._send("GET", f"api/runs/{run_id}/stack", may_be=(404,))
        return None if response.status_code == 404 else str(self._content(response, "stack"))

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run; False if it is not in flight.

        Raises:
            LiveError: As for `snapshot`.
        """
        response = await self._send("POST", f"api/runs/{run_id}/cancel", {}, may_be=(404,))
        return response.status_code != 404

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Answer a question.

        Raises:
            LiveError: As for `snapshot`, or the answer is too long.
        """
        response = await self._send(
            "POST", f"api/interrupts/{question_id}/answer", {"value": value}, may_be=(409, 503)
        )
        outcome = self._content(response, "outcome")
        found = response.json()
        return Answered(outcome, found.get("status"), found.get("error"))

    async def _listen(self) -> AsyncGenerator[tuple[str, str], None]:
        timeout = httpx.Timeout(_REQUEST_SECONDS, read=_SILENT_SECONDS)
        try:
            async with self._client.stream("GET", "api/events", timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    self._check(response)
                async with contextlib.aclosing(EventSource(response).aiter_sse()) as events:
                    async for event in events:
                        yield event.event, event.data
        except SSEError:
            raise self._no_page() from None
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _send(
        self, method: str, path: str, body: object = None, *, may_be: tuple[int, ...] = ()
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            response = await self._client.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code not in may_be:
            self._check(response)
        return response

    def _content(self, response: httpx.Response, key: str) -> Any:
        """Return a value of the JSON object of a response; the response may be a proxy's."""
        try:
            return response.json()[key]
        except (ValueError, LookupError, TypeError):
            status = response.status_code
            raise UnreachableError(
                f"{self.place} answers with status {status}, and not as a page"
            ) from None

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if status >= 500:
            raise UnreachableError(f"{self.place} answers with status {status}: {_said(response)}")
        if status in _REMEDIES:
            raise LiveError(f"cannot look at {self.place}: {_REMEDIES[status]}")
        if status in (400, 413, 415):
            raise LiveError(f"{self.place} refuses the request: {_said(response)}")
        raise self._no_page()

    def _checked(self, text: str) -> Snapshot:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise self._no_page() from None
        version = found.get("version") if isinstance(found, dict) else None
        if version is None:
            raise self._no_page()
        if version != VERSION or not Snapshot.__required_keys__ <= found.keys():
            raise LiveError(
                f"{self.place} is the page of another release of rxlanggraph; look at it in a "
                "browser, or install the same release here"
            )
        snapshot: Snapshot = found
        return snapshot

    def _no_page(self) -> LiveError:
        return LiveError(
            f"there is no live page at {self.place}: give the address that 'rxlanggraph run "
            "--live' has printed"
        )

    def _unreachable(self, error: httpx.HTTPError) -> UnreachableError:
        if isinstance(error, (httpx.ReadError, httpx.RemoteProtocolError)):
            return UnreachableError(f"the connection to {self.place} was cut")
        reason = str(error) or type(error).__name__
        return UnreachableError(f"{self.place} does not answer ({reason})")


def _parsed(address: str, token: str | None) -> tuple[str, str, str]:
    """Return the address without the token and with a slash at its end, its host, and the token."""
    try:
        url: httpx.URL | None = httpx.URL(address)
    except httpx.InvalidURL:
        url = None
    if url is None or not url.host or (url.port or 0) > 65535:  # which httpx does not check
        shown = address.partition("?")[0]
        raise LiveError(f"{shown} is not an address: write http://HOST:PORT/?token=...")
    path = url.path.rstrip("/") + "/"
    place = str(url.copy_with(userinfo=b"", path=path, query=None, fragment=None))
    token = url.params.get("token") or token
    if not token:
        raise LiveError(
            f"the page at {place} needs its token: give the whole address that was printed, ending "
            f"in ?token=..., or set {LIVE_TOKEN}"
        )
    try:
        check_secret("token", token)
    except InvalidArgumentError as error:
        raise LiveError(f"the page at {place} has no such token: {error}") from None
    return place, url.host, token


def _said(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, LookupError, TypeError):
        return response.reason_phrase


def _reason(data: str) -> str:
    try:
        return str(json.loads(data)["reason"])
    except (ValueError, LookupError, TypeError):
        return "closed"
