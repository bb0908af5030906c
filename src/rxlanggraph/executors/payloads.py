"""Calls, results and errors as bytes, each by itself: what cannot be sent fails its own run alone.

An error arrives as it was raised. What pickle leaves out of it is added: its cause, and the
traceback of the worker, as text in the innermost cause. One that pickle cannot make again is made
without its ``__init__``.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rxlanggraph.errors import InvalidTypeError, RunError, error_text

__all__ = [
    "Dumps",
    "RemoteCall",
    "RemoteTracebackError",
    "dump_call",
    "dump_error",
    "load_error",
    "loads",
]

Dumps: TypeAlias = Callable[[Any], bytes]


def loads(data: bytes) -> Any:
    """Return what was pickled, by this program in another process. Any thread; never blocks."""
    return pickle.loads(data)  # noqa: S301 - its workers execute its code anyway


class RemoteCall(NamedTuple):
    """A call of the graph, or of something in it.

    Attributes:
        path: The attributes that lead to what is called; empty for the graph itself.
        streams: Whether it returns an async iterator, whose items are sent one by one.
        arguments: The positional arguments.
        options: The keyword arguments.
        variables: The values of the context variables that are carried.
        companions: The counterparts of what accompanies it.
    """

    path: tuple[str, ...]
    streams: bool
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    variables: Mapping[str, Any]
    companions: Sequence[Any] = ()


class RemoteTracebackError(Exception):
    """The cause of an error of another process: its traceback there, as text."""

    def __str__(self) -> str:
        """Return the traceback."""
        return f"\n{self.args[0]}" if self.args else ""


def dump_call(call: RemoteCall, dumps: Dumps) -> bytes:
    """Pickle ``call``. Any thread; never blocks.

    Raises:
        InvalidTypeError: A part of it cannot be pickled; the message names it.
    """
    try:
        return dumps(tuple(call))
    except Exception as error:
        what = next((name for name, part in _parts(call) if _fails(part, dumps)), "the call")
        raise InvalidTypeError(
            f"{what} cannot be sent to a worker process, because it cannot be pickled: "
            f"{error_text(error)}"
        ) from error


def _parts(call: RemoteCall) -> list[tuple[str, Any]]:
    names = ("the message's content", "the config")
    parts: list[tuple[str, Any]] = []
    for name, value in zip(names, call.arguments, strict=False):
        if name == "the config" and isinstance(value, Mapping):
            parts += [(f"{key!r} of the config", part) for key, part in value.items()]
        parts.append((name, value))
    parts += [(f"the argument {name}", value) for name, value in call.options.items()]
    parts += [(f"the context variable {name}", value) for name, value in call.variables.items()]
    return parts


def _fails(value: Any, dumps: Dumps) -> bool:
    try:
        dumps(value)
    except Exception:
        return True
    return False


def dump_error(error: BaseException, dumps: Dumps) -> bytes:
    """Pickle ``error`` with its causes and its traceback. Any thread; never blocks."""
    text = "".join(traceback.format_exception(error)).rstrip()
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is known for known in chain):  # `==` is the user's
        chain.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return dumps(([_portable(each, dumps) for each in chain], text))


def _portable(error: BaseException, dumps: Dumps) -> bytes:
    for form in (error, _Bare(error, dumps)):
        try:
            data = dumps(form)
            made = loads(data)  # it may need more than it has
            if type(made) is type(error) and str(made) == str(error):
                return data
        except BaseException:  # noqa: S112 - whatever its own methods raise: its call has to end
            continue
    try:
        text = error_text(error)
    except BaseException as second:  # as above
        text = f"(its __str__ raised {type(second).__name__})"
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return dumps(RunError(f"{name} (which cannot be pickled): {text}"))


class _Bare:
    """Pickled in the place of an exception whose class cannot be called with its ``args`` alone.

    The clients of providers have such, with a status and headers, by which it is decided whether
    another attempt is worth it. Those of its attributes that can be pickled come along.
    """

    def __init__(self, error: BaseException, dumps: Dumps) -> None:
        self._error = error
        self._dumps = dumps

    def __reduce__(self) -> tuple[Any, ...]:
        error, dumps = self._error, self._dumps
        state = {name: value for name, value in vars(error).items() if not _fails(value, dumps)}
        if isinstance(error, BaseExceptionGroup):
            group = [_portable(each, dumps) for each in error.exceptions]
            return _made_again, (type(error), (error.message,), state, group)
        return _made_again, (type(error), error.args, state)


def _made_again(
    kind: type[BaseException],
    args: tuple[Any, ...],
    state: dict[str, Any],
    group: Sequence[bytes] | None = None,
) -> BaseException:
    if group is not None:
        args = (*args, [loads(each) for each in group])
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


def load_error(data: bytes) -> BaseException:
    """Return the error of `dump_error`. Any thread; never blocks."""
    try:
        dumped, text = loads(data)
        chain: list[BaseException] = [loads(each) for each in dumped]
    except Exception as error:
        failure = RunError(f"the error of a worker process cannot be read: {error_text(error)}")
        failure.__cause__ = error
        return failure
    for each, cause in zip(chain, [*chain[1:], RemoteTracebackError(text)], strict=True):
        each.__cause__ = cause
    return chain[0]
