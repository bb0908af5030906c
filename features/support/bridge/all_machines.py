"""The machines by the names of their models, and the faults that they have to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.bridge import interrupts_machine, machines, overflow_machine, policy_machine

__all__ = ["FAULTS", "difference", "search"]

_MACHINES: dict[str, type[machines.BridgeMachine]] = {
    "overflow": overflow_machine.OverflowMachine,
    "thread policies": policy_machine.PolicyMachine,
    "a graph that asks": interrupts_machine.InterruptsMachine,
}
FAULTS = {**overflow_machine.FAULTS, **policy_machine.FAULTS, **interrupts_machine.FAULTS}


def search(subject: str, options: Mapping[str, Any], **bounds: int) -> None:
    """See `machines.search`."""
    machines.search(_MACHINES[subject], options, **bounds)


def difference(subject: str, options: Mapping[str, Any], **bounds: int) -> AssertionError | None:
    """See `machines.difference`."""
    return machines.difference(_MACHINES[subject], options, **bounds)
