"""The forms in which MCP, and what surrounds it, brings text; and some that bring none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types
from langchain_core.messages import HumanMessage

__all__ = ["FORMS"]

URI = "file:///a.txt"


def text(words: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(type="text", text=words)


def wire(thing: Any) -> Any:
    return thing.model_dump(mode="json", by_alias=True, exclude_none=True)


def embedded() -> mcp_types.EmbeddedResource:
    resource = mcp_types.TextResourceContents(uri=URI, text="hello")
    return mcp_types.EmbeddedResource(type="resource", resource=resource)


def link() -> mcp_types.ResourceLink:
    return mcp_types.ResourceLink(type="resource_link", name="name", title="The title", uri=URI)


def image() -> mcp_types.ImageContent:
    return mcp_types.ImageContent(type="image", data="AAAA", mime_type="image/png")


def audio() -> mcp_types.AudioContent:
    return mcp_types.AudioContent(type="audio", data="AAAA", mime_type="audio/wav")


def blob() -> mcp_types.EmbeddedResource:
    resource = mcp_types.BlobResourceContents(uri=URI, blob="AAAA")
    return mcp_types.EmbeddedResource(type="resource", resource=resource)


def prompt(*words: str) -> mcp_types.GetPromptResult:
    messages = [mcp_types.PromptMessage(role="user", content=text(word)) for word in words]
    return mcp_types.GetPromptResult(messages=messages)


def result() -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[text("one"), text("two")])


def contents() -> mcp_types.ReadResourceResult:
    return mcp_types.ReadResourceResult(
        contents=[mcp_types.TextResourceContents(uri=URI, text="hello")]
    )


def nested(what: Any, depth: int, width: int = 1) -> Any:
    for _ in range(depth):
        what = [what] * width
    return what


def holding_itself(make: Callable[[], Any]) -> Any:
    holder = make()
    if isinstance(holder, dict):
        holder["content"] = holder
    else:
        holder += [holder, holder]
    return holder


FORMS: dict[str, Callable[[], Any]] = {
    "a string": lambda: "hello",
    "bytes in UTF-8": "grüezi".encode,
    "a mapping with a text": lambda: {"text": "hello"},
    "a mapping with a text of type text": lambda: {"type": "text", "text": "hello"},
    "a mapping with a content": lambda: {"content": "hello"},
    "a mapping with a content of blocks": lambda: {"content": [{"type": "text", "text": "hello"}]},
    "a list of strings, blocks and bytes": lambda: ["one", {"text": "two"}, b"three"],
    "a tuple of blocks": lambda: ({"text": "one"}, {"text": "two"}),
    "the SDK's text block": lambda: text("hello"),
    "the SDK's embedded text": embedded,
    "the SDK's embedded text, as on the wire": lambda: wire(embedded()),
    "the SDK's resource link": link,
    "the SDK's resource link, as on the wire": lambda: wire(link()),
    "a link that has a name alone": lambda: {"type": "resource_link", "name": "name", "uri": URI},
    "a link that has nothing but its address": lambda: {"type": "resource_link", "uri": URI},
    "the SDK's prompt message": lambda: prompt("hello").messages[0],
    "the SDK's prompt of two messages": lambda: prompt("one", "two"),
    "the SDK's result of a tool": result,
    "the SDK's result of a tool, as on the wire": lambda: wire(result()),
    "the SDK's contents of a resource": contents,
    "a LangChain message": lambda: HumanMessage("hello"),
    "a LangChain message of blocks": lambda: HumanMessage(
        [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    ),
    "text beside an image, audio and a blob": lambda: [image(), text("hello"), audio(), blob()],
    "text beside nothing and blanks": lambda: [None, "hello", "", " \n", []],
    "fifteen lists around a string": lambda: nested("hello", 15),
    # What holds no text:
    "nothing": lambda: None,
    "an empty string": str,
    "blanks": lambda: " \n",
    "an empty list": list,
    "an image": image,
    "audio": lambda: wire(audio()),
    "an image and audio": lambda: [image(), audio(), image()],
    "a blob": lambda: wire(blob()),
    "half of a surrogate pair": lambda: "half of \ud83d",
    "bytes that are not UTF-8": lambda: b"\xff\xfe",
    "a number": lambda: 5,
    "an empty mapping": dict,
    "a mapping of something else": lambda: {"temperature": 12},
    "a text that is a number": lambda: {"text": 5},
    "text beside a number": lambda: ["hello", 5],
    # What would take forever:
    "a list that holds itself": lambda: holding_itself(list),
    "a mapping that holds itself": lambda: holding_itself(dict),
    "ten times ten lists, 14 deep": lambda: nested("hello", 14, width=10),
    "nothing, ten to the fourteenth": lambda: nested(None, 14, width=10),
}
