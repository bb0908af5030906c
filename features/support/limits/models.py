"""A chat model that calls the provider of the tests, by HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from support.concurrency.waiting import LIMIT

__all__ = ["ProviderError", "ProviderModel"]


class ProviderError(Exception):
    """As the clients of providers raise them: with a status, and a response that has headers."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"the provider answered {status}")
        self.status_code = status
        self.response = SimpleNamespace(headers=headers)


class ProviderModel(BaseChatModel):
    """Asks with the text of the last message: how many tokens question and answer have."""

    url: str
    model: str = "small"
    seconds: float = 0.0
    """How long a call is on its way, on the loop."""

    @property
    def _llm_type(self) -> str:
        return "provider"

    def _ask(self, messages: list[BaseMessage]) -> AIMessage:
        prompt, tokens = (int(part) for part in str(messages[-1].content).split()[:2])
        asked = {"key": self.model, "tokens": tokens, "prompt": prompt}
        request = urllib.request.Request(self.url, json.dumps(asked).encode())
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as response:
                answer = json.load(response)
                headers = dict(response.headers)
        except urllib.error.HTTPError as error:
            headers = dict(error.headers)
            error.close()
            raise ProviderError(error.code, headers) from None
        return AIMessage(
            "well",
            usage_metadata={
                "input_tokens": answer["prompt"],
                "output_tokens": answer["answer"],
                "total_tokens": answer["prompt"] + answer["answer"],
            },
            response_metadata={"model_name": self.model, "headers": headers},
        )

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._ask(messages))])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        await asyncio.sleep(self.seconds)
        return await asyncio.get_running_loop().run_in_executor(None, self._generate, messages)

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._ask(messages)
        yield ChatGenerationChunk(message=AIMessageChunk("we"))
        yield ChatGenerationChunk(
            message=AIMessageChunk("ll", usage_metadata=answer.usage_metadata)
        )

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        await asyncio.sleep(self.seconds)
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(None, self._ask, messages)
        yield ChatGenerationChunk(message=AIMessageChunk("we"))
        yield ChatGenerationChunk(
            message=AIMessageChunk("ll", usage_metadata=answer.usage_metadata)
        )
