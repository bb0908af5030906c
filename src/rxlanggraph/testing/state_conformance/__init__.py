"""A conformance suite for backends of shared state, to be run against your own.

    @pytest.mark.parametrize("check", conformance_checks(), ids=str)
    async def test_my_backend(check):
        await check(functools.partial(open_state, "mydb://localhost"))

A backend that `open_state` cannot open needs a function that takes a ``namespace`` and returns an
async context manager of a new `State`, on the same data each time. ``python -m
rxlanggraph.testing.state_conformance URL`` runs all checks, and reports the failures.

Each check uses a namespace of its own, ``conformance-...``, and leaves it behind.
"""

from __future__ import annotations

from rxlanggraph.testing.state_conformance import (
    administration,
    batches,
    fences,
    limits,
    order,
    recovery,
    sharing,
    steps,
    values,
    work,
)
from rxlanggraph.testing.state_conformance.harness import Check, OpenState

__all__ = ["Check", "OpenState", "conformance_checks"]


def conformance_checks() -> list[Check]:
    """Return all checks, in the order of the parts of the contract. Any thread; never blocks."""
    parts = (
        values,
        sharing,
        fences,
        work,
        batches,
        order,
        limits,
        recovery,
        steps,
        administration,
    )
    return [each for part in parts for each in part.CHECKS]
