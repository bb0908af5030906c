"""Single-use context managers: entering one a second time is an error."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Never, TypeVar

from rxlanggraph.errors import UsageError

__all__ = ["SingleUseAsyncContext", "SingleUseContext"]

_T = TypeVar("_T")


class _SingleUse:
    """Whether a context manager was entered. Not thread-safe."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._entered = False

    def begin(self) -> None:
        """Record that it is entered.

        Raises:
            UsageError: It was entered before.
        """
        if self._entered:
            raise UsageError(
                f"the context manager returned by {self._call} was entered before, and is "
                "single-use; make that call again for each block"
            )
        self._entered = True

    def not_entered(self, statement: str, attribute: str) -> AttributeError:
        """Make the error of code that uses the context manager as if it were what it gives."""
        return AttributeError(
            f"{self._call} returns a context manager, which has no {attribute!r}: write "
            f"'{statement} {self._call} as x', and x.{attribute} in its block"
        )


class SingleUseAsyncContext(AbstractAsyncContextManager[_T]):
    """An async context manager that can be entered once.

    Args:
        call: The call that returns it, for the error message.
        manager: The manager to enter and exit.
    """

    def __init__(self, call: str, manager: AbstractAsyncContextManager[_T]) -> None:
        self._use = _SingleUse(call)
        self._manager = manager

    def __getattr__(self, name: str) -> Never:
        """Say that the block is missing: AttributeError."""
        if name.startswith("_"):  # looked for by Python, or by tools, before __init__ too
            raise AttributeError(name)
        raise self._use.not_entered("async with", name)

    async def __aenter__(self) -> _T:
        """Enter; UsageError the second time."""
        self._use.begin()
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Leave."""
        return await self._manager.__aexit__(exc_type, exc, traceback)


class SingleUseContext(AbstractContextManager[_T]):
    """A context manager that can be entered once. Arguments as for `SingleUseAsyncContext`."""

    def __init__(self, call: str, manager: AbstractContextManager[_T]) -> None:
        self._use = _SingleUse(call)
        self._manager = manager

    def __getattr__(self, name: str) -> Never:
        """Say that the block is missing: AttributeError."""
        if name.startswith("_"):  # as above
            raise AttributeError(name)
        raise self._use.not_entered("with", name)

    def __enter__(self) -> _T:
        """Enter; UsageError the second time."""
        self._use.begin()
        return self._manager.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Leave."""
        return self._manager.__exit__(exc_type, exc, traceback)
