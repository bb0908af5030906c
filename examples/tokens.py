"""Tokens as a stream: two conversations answered at once, each shown word by word.

    python tokens.py

`bridge.stream` runs the graph of a chat model in LangGraph's mode "messages". Each token names its
message, so the interleaved tokens of both answers can be grouped by conversation. The last item of
each is the result, with the whole answer. A fake model stands in for a real one, so that the
example runs offline.
"""

from __future__ import annotations

from typing import Any

import reactivex as rx
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

ANSWERS = {
    "Bern": "It rains in Bern until noon.",
    "Rome": "The sun shines in Rome all day long.",
}


async def answer(state: MessagesState) -> dict[str, Any]:
    """Answer the last message; the model streams its tokens if they are read."""
    city = str(state["messages"][-1].content)
    model = GenericFakeChatModel(messages=iter([AIMessage(ANSWERS[city])]))
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()


def told(items: rx.Observable[StreamMessage]) -> rx.Observable[tuple[str, str, bool]]:
    """Return, for each item, the conversation, the text so far, and whether that is the result."""

    def add(shown: tuple[str, str, bool], item: StreamMessage) -> tuple[str, str, bool]:
        if item.sequence is None:
            return item.thread_id or "", str(item.content["messages"][-1].content), True
        token, _metadata = item.content
        return item.thread_id or "", shown[1] + token.content, False

    return items.pipe(
        ops.group_by(lambda item: item.thread_id),
        ops.flat_map(lambda conversation: conversation.pipe(ops.scan(add, ("", "", False)))),
    )


def main() -> None:
    """Print both answers as they grow."""
    questions = [StreamMessage({"messages": [("user", city)]}, city) for city in ANSWERS]
    with RxPyLangGraphBridge() as bridge:
        items = rx.from_iterable(questions).pipe(bridge.stream(graph, stream_mode="messages"))
        told(items).pipe(
            ops.do_action(lambda shown: print(f"{shown[0]}{':' if shown[2] else '...'} {shown[1]}"))
        ).run()


if __name__ == "__main__":
    main()
