"""JSON values, names and numbers: what cannot be stored is refused before anything is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, error_text

__all__ = [
    "JSON_TYPES",
    "check_attempts",
    "check_function",
    "check_integer",
    "check_name",
    "check_names",
    "check_seconds",
    "check_token",
    "check_wait",
    "decode",
    "encode",
    "error_value",
]

# So that a key fits into an index of every backend, whatever its characters take in UTF-8.
_LONGEST_NAME = 512
# A hundred years: every server can add it to its clock.
_LONGEST_TIME = 100 * 366 * 86400.0
# Made once: json.dumps would make one for each value.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()
# Of values that cannot be awaited, without asking them.
JSON_TYPES: Final = frozenset({bool, dict, float, int, list, str, type(None)})
# What comes back equal, if it can be encoded at all.
_SCALARS = (float, bool, type(None))


# -- values ----------------------------------------------------------------------------------------


def encode(value: Any) -> str:
    """Return ``value`` as JSON text, in ASCII. Any thread; never blocks.

    A value is JSON if it comes back equal: so a tuple, a mapping with keys that are not strings or
    a NaN is refused, instead of coming back as something else.

    Raises:
        InvalidTypeError: ``value`` is not a JSON value.
    """
    try:
        if type(value) is int:
            return str(value)  # at once: the encoder is made anew for each value
        text = _ENCODER.encode(value)
        if type(value) in _SCALARS or (type(value) is str and value.isascii()):
            return text
        back = decode(text)
        same = bool(back == value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTypeError(f"{_short(value)} is no JSON value: {error}") from error
    if not same:
        raise InvalidTypeError(
            f"{_short(value)} is no JSON value: it would come back as {_short(back)}; convert it "
            "(tuples to lists, keys to strings) before it is stored"
        )
    return text


def decode(text: str | None) -> Any:
    """Return the value of a JSON text; None of None. Any thread; never blocks."""
    if text is None:
        return None
    # json.loads checks for surrounding blanks, which takes longer than reading most values.
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        value, end = None, -1
    return value if end == len(text) else json.loads(text)


def error_value(error: Any) -> Any:
    """Return the JSON value of an exception; anything else as it is. Any thread; never blocks."""
    if isinstance(error, BaseException):
        return {"type": type(error).__qualname__, "message": error_text(error)}
    return error


# -- names -----------------------------------------------------------------------------------------


def check_name(argument: str, name: object) -> str:
    """Return ``name``, of a key, queue, worker, thread or id, if it is valid.

    Raises:
        InvalidTypeError: It is not a string.
        InvalidArgumentError: It is empty, too long, or has characters that not all servers accept.
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"{argument} must be a string, not {_short(name)}")
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise InvalidArgumentError(
            f"{argument} must have 1 to {_LONGEST_NAME} characters, not {len(name)}"
        )
    if "\0" in name or not (name.isascii() or _encodable(name)):
        raise InvalidArgumentError(
            f"{argument} must be text without NUL and lone surrogates, not {_short(name)}"
        )
    return name


def check_names(argument: str, names: object) -> frozenset[str]:
    """Return ``names`` as a set, if they are a collection of valid names, perhaps empty.

    Raises:
        InvalidTypeError: It is one string, or not a collection, or contains other types than
            strings.
        InvalidArgumentError: One of them is not a valid name.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidTypeError(f"{argument} must be a list of strings, not {_short(names)}")
    return frozenset(check_name(f"each of {argument}", name) for name in names)


def _encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- numbers ---------------------------------------------------------------------------------------


def check_integer(argument: str, value: object, bits: int = 64) -> int:
    """Return ``value`` if it is a whole number of at most so many bits, including its sign.

    Raises:
        InvalidTypeError: It is not an integer (a bool is not one).
        InvalidArgumentError: It is too large.
    """
    if type(value) is not int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidTypeError(f"{argument} must be an integer, not {_short(value)}")
        value = int(value)
    if value.bit_length() >= bits and value != -(1 << (bits - 1)):
        raise InvalidArgumentError(f"{argument} must fit into {bits} bits, not {_short(value)}")
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


def check_token(token: Any) -> int | None:
    """Return the number of a fencing token: of a lease, of a claim, or itself; None for None.

    Raises:
        InvalidTypeError: It is none of these.
        InvalidArgumentError: It is too large.
    """
    return None if token is None else check_integer("token", getattr(token, "token", token))


def check_seconds(argument: str, value: object, *, zero: bool = False) -> float:
    """Return ``value`` if it is a duration: more than 0 (or 0 with ``zero``), 100 years at most.

    Raises:
        InvalidTypeError: It is not a number.
        InvalidArgumentError: It is out of range.
    """
    seconds = _number(argument, value)
    if not 0 <= seconds <= _LONGEST_TIME or (seconds == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise InvalidArgumentError(
            f"{argument} must be {least} seconds, and less than 100 years, not {value!r}"
        )
    return seconds


def check_wait(value: object) -> float:
    """Return how long to wait: 0 or more, infinity allowed.

    Raises:
        InvalidTypeError: It is not a number.
        InvalidArgumentError: It is negative or NaN.
    """
    seconds = _number("wait", value)
    if not seconds >= 0:
        raise InvalidArgumentError(f"wait must be 0 or more seconds, not {value!r}")
    return seconds


def _number(argument: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidTypeError(f"{argument} must be a number of seconds, not {_short(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# -- functions -------------------------------------------------------------------------------------


def check_function(argument: str, value: object) -> None:
    """Refuse a value that is not callable.

    Raises:
        InvalidTypeError: ``value`` is not a function.
    """
    if not callable(value):
        raise InvalidTypeError(f"{argument} must be a function, not {_short(value)}")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # a broken repr, or too deep: show the type instead
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."
