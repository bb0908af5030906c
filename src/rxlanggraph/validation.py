"""Argument checks: one for each kind of argument, with the same wording everywhere.

Any thread may call them; none blocks. What goes to a server has to suit every server, and its
checks tell a wrong type (`InvalidTypeError`) from a wrong value (`InvalidArgumentError`).
"""

from __future__ import annotations

import ipaddress
import math
import re
import reprlib
from collections.abc import Collection, Iterable
from threading import TIMEOUT_MAX
from types import CoroutineType

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = [
    "LOOPBACK",
    "check_attempts",
    "check_duration",
    "check_flag",
    "check_function",
    "check_hosts",
    "check_identifier",
    "check_identifiers",
    "check_integer",
    "check_name",
    "check_origins",
    "check_plain",
    "check_seconds",
    "check_secret",
    "check_timeout",
    "check_token",
    "check_wait",
    "check_wait_limit",
    "check_whole",
    "is_loopback",
    "shortened",
]

# So that a key fits into an index of every backend, whatever its characters take in UTF-8.
_LONGEST_IDENTIFIER = 512
# A hundred years: every server can add it to its clock.
_LONGEST_DURATION = 100 * 366 * 86400.0
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""What this machine calls itself, in URLs."""
_HOST = re.compile(r"[\w.:\[\]-]+", re.ASCII)
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_HOST.pattern}", re.ASCII | re.IGNORECASE)


# -- what stays in the process ---------------------------------------------------------------------


def check_name(argument: str, value: object) -> None:
    """Check that ``value`` is a non-empty string.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{argument} must be a non-empty string, not {shortened(value)}")


def check_whole(argument: str, value: object, *, least: int) -> None:
    """Check that ``value`` is a whole number, at least ``least``.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(
            f"{argument} must be a whole number from {least}, not {shortened(value)}"
        )


def check_seconds(argument: str, value: object) -> None:
    """Check that ``value`` is a number of seconds, at least 0.

    Raises:
        InvalidArgumentError: It is something else.
    """
    seconds = _number(value)
    if seconds is None or not 0 <= seconds < math.inf:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds from 0, not {shortened(value)}"
        )


def check_timeout(argument: str, timeout: object, *, no_limit: str = "math.inf") -> float:
    """Return ``timeout`` if it is a number of seconds above 0, or infinity.

    Args:
        argument: The name under which it was passed.
        timeout: What was passed.
        no_limit: What its caller passes for no limit.

    Raises:
        InvalidArgumentError: It is something else.
    """
    seconds = _number(timeout)
    if seconds is None or not seconds > 0:
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds above 0, or {no_limit} for no limit, "
            f"not {shortened(timeout)}"
        )
    return seconds


def check_wait_limit(argument: str, seconds: object) -> float | None:
    """Return how long a wait may take at most, as locks and event loops accept it; None: forever.

    What breaks without it: infinity overflows in the middle of the wait, and NaN is before and
    after every other deadline.

    Args:
        argument: The name under which it was passed.
        seconds: A number, of which a negative one is 0; None or infinity for no limit.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if seconds is None:
        return None
    limit = _number(seconds)
    if limit is None or math.isnan(limit):
        raise InvalidArgumentError(
            f"{argument} must be a number of seconds, or None for no limit, "
            f"not {shortened(seconds)}"
        )
    return max(0.0, limit) if limit < TIMEOUT_MAX else None


def check_flag(argument: str, value: object) -> None:
    """Check that ``value`` is a bool: not a text such as "no", which is true.

    Raises:
        InvalidTypeError: It is something else.
    """
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{argument} must be True or False, not {shortened(value)}")


def check_function(argument: str, value: object) -> None:
    """Check that ``value`` is callable.

    Raises:
        InvalidTypeError: It is not.
    """
    if not callable(value):
        raise InvalidTypeError(f"{argument} must be a function, not {shortened(value)}")


def check_plain(argument: str, value: object) -> None:
    """Check that ``value``, which a function passed as ``argument`` has returned, can be used now.

    Nothing awaits it, so a coroutine would be taken for the value; it is closed.

    Raises:
        InvalidTypeError: It is a coroutine.
    """
    if isinstance(value, CoroutineType):
        value.close()
        raise InvalidTypeError(
            f"{argument} must be a plain function, and {value.__qualname__!r} is an async one, "
            "which nothing would await here; await what it needs before the message is sent"
        )


# -- what goes to a server -------------------------------------------------------------------------


def check_identifier(argument: str, value: object) -> str:
    """Return ``value``, a key, an id, or the name of a queue, a worker or a thread, if it is valid.

    Raises:
        InvalidTypeError: It is not a string.
        InvalidArgumentError: It is empty, too long, or has characters that not all servers accept.
    """
    if not isinstance(value, str):
        raise InvalidTypeError(f"{argument} must be a string, not {shortened(value)}")
    if not 1 <= len(value) <= _LONGEST_IDENTIFIER:
        raise InvalidArgumentError(
            f"{argument} must have 1 to {_LONGEST_IDENTIFIER} characters, not {len(value)}"
        )
    if "\0" in value or not (value.isascii() or _encodable(value)):
        raise InvalidArgumentError(
            f"{argument} must be text without NUL and lone surrogates, not {shortened(value)}"
        )
    return value


def check_identifiers(argument: str, values: object) -> frozenset[str]:
    """Return ``values`` as a set, if they are a collection of valid identifiers, perhaps empty.

    Raises:
        InvalidTypeError: It is one string, or not a collection, or contains other types than
            strings.
        InvalidArgumentError: One of them is not a valid identifier.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{argument} must be a list of strings, not {shortened(values)}")
    return frozenset(check_identifier(f"each of {argument}", value) for value in values)


def check_integer(argument: str, value: object, bits: int = 64) -> int:
    """Return ``value`` if it is a whole number of at most so many bits, including its sign.

    Raises:
        InvalidTypeError: It is not an integer (a bool is not one).
        InvalidArgumentError: It is too large.
    """
    if type(value) is not int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidTypeError(f"{argument} must be an integer, not {shortened(value)}")
        value = int(value)
    if value.bit_length() >= bits and value != -(1 << (bits - 1)):
        raise InvalidArgumentError(f"{argument} must fit into {bits} bits, not {shortened(value)}")
    return value


def check_attempts(argument: str, value: object) -> int:
    """Return ``value`` if it is a number of attempts: 1 or more.

    Raises:
        InvalidTypeError: It is not an integer.
        InvalidArgumentError: It is less than 1, or too large.
    """
    number = check_integer(argument, value, bits=32)
    if number < 1:
        raise InvalidArgumentError(f"{argument} must be 1 or more, not {number}")
    return number


def check_token(token: object) -> int | None:
    """Return the number of a fencing token: of a lease, of a claim, or itself; None for None.

    Raises:
        InvalidTypeError: It is none of these.
        InvalidArgumentError: It is too large.
    """
    return None if token is None else check_integer("token", getattr(token, "token", token))


def check_duration(argument: str, value: object, *, zero: bool = False) -> float:
    """Return ``value`` if it is a duration: more than 0 (or 0 with ``zero``), 100 years at most.

    Raises:
        InvalidTypeError: It is not a number.
        InvalidArgumentError: It is out of range.
    """
    seconds = _number_or_type_error(argument, value)
    if not 0 <= seconds <= _LONGEST_DURATION or (seconds == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise InvalidArgumentError(
            f"{argument} must be {least} seconds, and less than 100 years, not {shortened(value)}"
        )
    return seconds


def check_wait(value: object) -> float:
    """Return how long to wait: 0 or more, infinity allowed.

    Raises:
        InvalidTypeError: It is not a number.
        InvalidArgumentError: It is negative or NaN.
    """
    seconds = _number_or_type_error("wait", value)
    if not seconds >= 0:
        raise InvalidArgumentError(f"wait must be 0 or more seconds, not {shortened(value)}")
    return seconds


# -- who may call a server over HTTP ---------------------------------------------------------------


def check_hosts(argument: str, names: object) -> tuple[str, ...]:
    """Return ``names`` in lower case, if they are a list of hosts, each perhaps with a port.

    An IPv6 address is put into brackets, as in a URL.

    Raises:
        InvalidTypeError: It is not a list.
        InvalidArgumentError: One of them is not the name of a host.
    """
    return tuple(map(_bracketed, _checked_names(argument, names, _HOST, "example.com:8443")))


def check_origins(argument: str, names: object) -> tuple[str, ...]:
    """Return ``names`` in lower case, if they are a list of origins.

    Raises:
        InvalidTypeError: It is not a list.
        InvalidArgumentError: One of them is not an origin.
    """
    return _checked_names(argument, names, _ORIGIN, "https://example.com:8443")


def check_secret(argument: str, value: object, *, least: int = 1) -> str:
    """Return ``value`` if it can be sent as a bearer token, and is long enough.

    Raises:
        InvalidTypeError: It is not a string.
        InvalidArgumentError: It is too short, or has other characters. It is not shown.
    """
    if not isinstance(value, str):
        raise InvalidTypeError(f"{argument} must be a string, not {type(value).__name__}")
    if len(value) < least or not value.isascii() or not value.isprintable() or " " in value:
        number = "one" if least == 1 else str(least)
        raise InvalidArgumentError(
            f"{argument} must be {number} or more visible ASCII characters; "
            "if it comes from an environment variable, check that it is set"
        )
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, a name or an address. Never asks a server."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_names(
    argument: str, names: object, form: re.Pattern[str], example: str
) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidTypeError(f"{argument} must be a list of names, not {shortened(names)}")
    for name in names:
        if not isinstance(name, str) or form.fullmatch(name) is None:
            raise InvalidArgumentError(
                f"{argument} must hold names such as '{example}', not {shortened(name)}"
            )
    return tuple(name.lower() for name in names)


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


# -- parts -----------------------------------------------------------------------------------------


def shortened(value: object) -> str:
    """Return a short text that shows ``value`` in an error message; its type if it has no text."""
    try:
        return reprlib.repr(value)
    except Exception:  # of an integer with thousands of digits, say
        return f"an object of type {type(value).__name__}"


def _number(value: object) -> float | None:
    """Return a number, infinite if it is too large for a float; None if it is something else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _number_or_type_error(argument: str, value: object) -> float:
    seconds = _number(value)
    if seconds is None:
        raise InvalidTypeError(f"{argument} must be a number of seconds, not {shortened(value)}")
    return seconds


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
