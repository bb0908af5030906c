"""Names of any characters, there and back."""

from __future__ import annotations

from rxlanggraph.state import Task, open_state

__all__ = ["NAMES", "names_come_back"]

NAMES = ("plain", "caf\u00e9", "\u6f22\u5b57")


async def names_come_back(url: str) -> list[tuple[str | None, str | None, str]]:
    """Key, thread and worker of a claim of each name, the worker as a dead letter tells it."""
    found = []
    async with open_state(url) as state:
        for name in NAMES:
            await state.add_tasks("queue", [Task(1, key=name, thread_id=name)])
            claim = await state.claim_task("queue", worker=name)
            assert claim is not None
            await claim.fail("no", final=True)
            (letter,) = await state.dead_letters("queue", keys=[name])
            found.append((claim.key, letter.thread_id, letter.worker))
    return found
