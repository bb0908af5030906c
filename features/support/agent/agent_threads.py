"""What is done to agents over graphs with threads, and what is then looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from support.agent.agent_tools import Asked, in_every_way, said
from support.concurrency.tasks import PATIENCE

__all__ = ["BEFORE", "Doing", "check_answers", "check_holds", "do_all", "use_tool"]

# What a scenario says is done to each agent in turn, since a saver belongs to one loop: the steps
# collect it, and the last one does it.
Doing = Callable[[Asked], Awaitable[None]]
BEFORE = [("human", "use the tool: it"), ("ai", ""), ("tool", "did it"), ("ai", "re: did it")]


def do_all(who: str, *doings: Doing, patience: float = PATIENCE) -> None:
    async def main() -> None:
        async for asked in in_every_way(who):
            for doing in doings:
                async with asyncio.timeout(patience):
                    await doing(asked)

    asyncio.run(main())


async def use_tool(asked: Asked) -> None:
    assert await asked.ask("use the tool: it") == "re: did it"
    asked.tools.begun.clear()


def check_holds(expected: list[tuple[str, str]]) -> Doing:
    async def check(asked: Asked) -> None:
        assert await asked.said() == expected, await asked.said()
        assert asked.remembered() == expected, asked.remembered()

    return check


async def check_answers(asked: Asked) -> None:
    before = asked.remembered()
    assert await asked.ask("hello") == "re: hello"
    assert said(asked.model.shown[-1]) == [*before, ("human", "hello")], asked.model.shown[-1]
    assert await asked.said() == [*before, ("human", "hello"), ("ai", "re: hello")]
