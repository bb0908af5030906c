"""Signals: what the errors and headers of a provider say.

Everything is recognized by its shape: the clients of providers are not imported. An error has its
HTTP status in ``status_code``, ``status`` or ``code``, its own or its response's, and its headers
beside that, as those of OpenAI, Anthropic, Google, httpx, requests, aiohttp and urllib do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = [
    "OVERLOADED",
    "attribute",
    "exhausted_for",
    "headers_of",
    "lowered",
    "requested_pause",
    "status_of",
]

OVERLOADED = frozenset({429, 503, 529})
"""The statuses by which a server asks for fewer calls; 529 is Anthropic's."""

# Causes of an exception that are looked at. A bound, as a chain may be a circle.
_CHAIN = 8
# Smaller numbers of seconds are durations, larger ones dates: this is 2001, or thirty years.
_EPOCH = 1_000_000_000.0
# Seconds of the longest pause. A guess: what names a longer one is mistaken, and the waits of
# threads, and the records of a state, have no room for all numbers.
_LONGEST = 30 * 86400.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# The names by which providers tell what is left, and when it is renewed.
_ALLOWANCES = [
    *(
        (f"x-ratelimit-remaining{what}", f"x-ratelimit-reset{what}")
        for what in ("", "-requests", "-tokens")
    ),
    *(
        (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset")
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it was raised from, with ``raise ... from`` or while handling it."""
    current: BaseException | None = error
    for _ in range(_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of ``error``, or of its cause; None if there is none.

    Any thread; never blocks.
    """
    return next((status for each in _chain(error) if (status := _own_status(each))), None)


def attribute(thing: object, name: str) -> Any:
    """Return an attribute of a foreign exception; None if it has none, or raises another one."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _own_status(error: BaseException) -> int | None:
    response = attribute(error, "response")
    for thing in (error, response):
        for name in ("status_code", "status", "code"):
            value = attribute(thing, name)
            if isinstance(value, int) and 100 <= value <= 599:
                return int(value)
    value = _metadata_of(response).get("HTTPStatusCode")
    return value if isinstance(value, int) else None


def _metadata_of(response: Any) -> Mapping[str, Any]:
    # Those of Amazon are dictionaries.
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def headers_of(error: BaseException) -> dict[str, str]:
    """Return the headers that came with ``error`` or its cause, by names in lower case."""
    for each in _chain(error):
        response = attribute(each, "response")
        for headers in (
            attribute(each, "headers"),
            attribute(response, "headers"),
            _metadata_of(response).get("HTTPHeaders"),
        ):
            found = lowered(headers)
            if found:
                return found
    return {}


def lowered(headers: Any) -> dict[str, str]:
    """Return ``headers``, if they are any, by names in lower case."""
    if headers is None:
        return {}
    try:
        return {str(name).lower(): str(value) for name, value in headers.items()}
    except Exception:  # they may be anything
        return {}


def requested_pause(headers: Mapping[str, str], time: float) -> float | None:
    """Return for how many seconds a server that has refused a call asks to wait.

    ``retry-after-ms`` comes first, then ``retry-after``, then the time until an allowance that is
    used up is renewed.

    Args:
        headers: By names in lower case.
        time: Seconds since the epoch.

    Returns:
        None if they do not say.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(_LONGEST, milliseconds / 1000)
    asked = _seconds(headers.get("retry-after"), time)
    return exhausted_for(headers, time) if asked is None else asked


def exhausted_for(headers: Mapping[str, str], time: float) -> float | None:
    """Return in how many seconds an allowance that is used up is renewed; None if there is none.

    Args:
        headers: By names in lower case.
        time: Seconds since the epoch.
    """
    resets = [
        _seconds(headers.get(reset), time)
        for remaining, reset in _ALLOWANCES
        if _number(headers.get(remaining)) == 0
    ]
    return max((seconds for seconds in resets if seconds is not None), default=None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _seconds(text: str | None, time: float) -> float | None:
    """Read a number of seconds, a duration such as 6m0s, or a date; as seconds from ``time``."""
    seconds = None if text is None else _seconds_in(text, time)
    return None if seconds is None else max(0.0, min(_LONGEST, seconds))


def _seconds_in(text: str, time: float) -> float | None:
    number = _number(text)
    if number is not None:
        if number >= 1000 * _EPOCH:
            number /= 1000  # milliseconds since the epoch
        return number if number < _EPOCH else number - time
    parts = _DURATION.findall(text)
    if parts and "".join(amount + unit for amount, unit in parts) == text.strip():
        return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    date = _date(text.strip())
    return None if date is None else date.timestamp() - time


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, OverflowError):  # of a year with twenty digits
            return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
