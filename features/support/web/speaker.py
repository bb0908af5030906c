"""A chat model whose pace a scenario sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

__all__ = ["Speaker", "spoken"]


class Speaker(BaseChatModel):
    """It says the numbers below ``tokens``, one token each.

    ``about_to`` has each of them before it is said. Before those in ``gates`` it waits; before
    ``fails_at`` it raises. ``padding`` makes tokens as long as they are to be.
    """

    tokens: int
    about_to: Any
    gates: Any
    fails_at: int | None = None
    padding: str = ""

    @property
    def _llm_type(self) -> str:
        return "speaker"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for number in range(self.tokens):
            self.about_to.add(number)
            if number == self.fails_at:
                raise LookupError("a secret of the model")
            if number in self.gates:
                await self.gates[number].wait_async()
            # Marked: after a stream without a last chunk, LangChain adds an empty one.
            last = "last" if number == self.tokens - 1 else None
            text = f"{number} {self.padding}"
            yield ChatGenerationChunk(message=AIMessageChunk(text, chunk_position=last))


def spoken(tokens: int) -> str:
    """What it has said in the end."""
    return "".join(f"{number} " for number in range(tokens))
