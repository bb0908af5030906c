"""Context managers that are good for one block, and say so when there is a second one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TypeVar

from rxlanggraph.errors import UsageError

__all__ = ["OneBlock", "OneBlockOfThread"]

_T = TypeVar("_T")


class _Once:
    """Refuses the second time. Confined to who enters."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._entered = False

    def begin(self) -> None:
        """Note that it is entered.

        Raises:
            UsageError: It was before.
        """
        if self._entered:
            raise UsageError(
                f"what {self._call} returns is for one block, and has had it; call it again for "
                "each block"
            )
        self._entered = True


class OneBlock(AbstractAsyncContextManager[_T]):
    """``manager``, for one block.

    Args:
        call: The call that makes such a manager, for people.
        manager: What is entered and left.
    """

    def __init__(self, call: str, manager: AbstractAsyncContextManager[_T]) -> None:
        self._once = _Once(call)
        self._manager = manager

    async def __aenter__(self) -> _T:
        """Enter; UsageError the second time."""
        self._once.begin()
        return await self._manager.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Leave."""
        return await self._manager.__aexit__(exc_type, exc, traceback)


class OneBlockOfThread(AbstractContextManager[_T]):
    """The same for a manager that blocks."""

    def __init__(self, call: str, manager: AbstractContextManager[_T]) -> None:
        self._once = _Once(call)
        self._manager = manager

    def __enter__(self) -> _T:
        """Enter; UsageError the second time."""
        self._once.begin()
        return self._manager.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Leave."""
        return self._manager.__exit__(exc_type, exc, traceback)
