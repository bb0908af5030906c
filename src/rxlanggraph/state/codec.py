"""JSON values: what cannot be stored is refused before anything is sent."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from rxlanggraph.errors import InvalidTypeError, UndecodableError, error_text
from rxlanggraph.validation import shortened

__all__ = ["CANCELLED", "EXPIRED", "JSON_TYPES", "decode", "encode", "error_value", "loads"]

# The error of a dead task whose last lease expired: no worker reported one.
EXPIRED: Final = {"type": "LeaseLostError", "message": "the lease of the last attempt expired"}
# The error of a task that was cancelled from outside.
CANCELLED: Final = {"type": "CancelledError", "message": "the task was cancelled from outside"}
# Shared, as json.dumps would make one for each value.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()
# Types whose values cannot be awaited: a cheaper test than `inspect.isawaitable`.
JSON_TYPES: Final = frozenset({bool, dict, float, int, list, str, type(None)})
# Levels of what Python can nest that are left to the stack of the reader, which may be deeper than
# that of the writer. A guess. From Python 3.14 on, what counts are not levels but bytes of the
# stack, of which a call needs more than a level does.
_MARGIN: Final = 200 if sys.version_info < (3, 14) else 1000
# Types whose values always decode to an equal value.
_SCALARS = (float, bool, type(None))


def encode(value: Any) -> str:
    """Return ``value`` as JSON text, in ASCII. Any thread; never blocks.

    A value is accepted if its text decodes to an equal value: so a tuple, a mapping with keys that
    are not strings, or a NaN is refused, instead of being returned as a different value later.

    Raises:
        InvalidTypeError: ``value`` is not a JSON value.
    """
    try:
        if type(value) is int:
            return str(value)  # a shortcut: each call of the encoder below has set-up costs
        text = _ENCODER.encode(value)
        if type(value) in _SCALARS or (type(value) is str and value.isascii()):
            return text
        back = _decode_with_margin(text)
        same = bool(back == value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTypeError(f"{shortened(value)} is not a JSON value: {error}") from error
    if not same:
        raise InvalidTypeError(
            f"{shortened(value)} is not a JSON value: it would come back as {shortened(back)}; "
            "convert it (tuples to lists, keys to strings) before it is stored"
        )
    return text


def _decode_with_margin(text: str) -> Any:
    """Decode a text that can also be decoded where less of the stack is left."""
    if text.count("[") + text.count("{") < _MARGIN:
        return loads(text)
    back = loads(f"{'[' * _MARGIN}{text}{']' * _MARGIN}")
    for _ in range(_MARGIN):
        (back,) = back
    return back


def decode(text: str | None, what: str, name: str) -> Any:
    """Return the value of a JSON text; None for None. Any thread; never blocks.

    Args:
        text: The text, as it is stored.
        what: What it is, for the error: "the value of".
        name: The key of a value, or the id of a task.

    Raises:
        UndecodableError: It is not JSON, or nested too deep: another program has written it.
    """
    if text is None:
        return None
    try:
        if not str.isascii(text):  # a TypeError: SQLite has bytes in a column of text
            text.encode()  # Redis has bytes that are not UTF-8, which come as lone surrogates
        return loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        why = "it is not text" if isinstance(error, TypeError) else error_text(error)
        raise UndecodableError(
            f"{what} {name!r} is not JSON that can be decoded, so another program has written it: "
            f"{why}; have that program write JSON, or delete it"
        ) from error


def loads(text: str) -> Any:
    """Do what `json.loads` does, in less time. Any thread; never blocks.

    That also looks for surrounding blanks, which takes longer than to decode most values.

    Raises:
        ValueError, RecursionError: As `json.loads`.
    """
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        value, end = None, -1
    return value if end == len(text) else json.loads(text)


def error_value(error: Any) -> Any:
    """Return an exception as a JSON value; other values unchanged. Any thread; never blocks."""
    if isinstance(error, BaseException):
        return {"type": type(error).__qualname__, "message": error_text(error)}
    return error
