"""extract_text: the text in a message, in any of the forms that MCP allows.

A block may be an object of the SDK, a mapping as on the wire, or an object of another framework. It
is therefore recognized by its fields and not by its class, and the SDK need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rxlanggraph.errors import AgentMessageError

__all__ = ["extract_text"]

MAX_DEPTH = 16
"""A guess, far above what MCP itself nests: a result, its list, a resource, its text."""

MAX_BLOCKS = 10_000
"""A guess, far above any real message. Deep and wide content could take forever otherwise."""

_NESTED = ("content", "contents", "messages", "resource")
_ACCEPTED = (
    "send a string, UTF-8 bytes, a mapping with 'text' or 'content', a text block, an embedded "
    "text resource, a resource link, or a list of them"
)


def extract_text(content: Any) -> str:
    """Return the text in ``content``; several blocks of text are joined by newlines.

    Any thread; never blocks. Images, audio, binary resources and other kinds of blocks are left out
    if there is text beside them.

    Args:
        content: A string; bytes in UTF-8; a mapping or object with a ``text``, or with a
            ``content``, ``contents``, ``messages`` or ``resource`` that holds one; a link to a
            resource (its title and address are the text); a list or tuple of any of these.

    Raises:
        AgentMessageError: There is no text in it, or something in it is in none of these forms.
    """
    texts: list[str] = []
    others: list[str] = []
    for number, (block, text) in enumerate(_leaves(content, 0)):
        if number == MAX_BLOCKS:
            raise AgentMessageError(f"the message has more than {MAX_BLOCKS} blocks; send fewer")
        if text is None:
            others.append(block)
        elif text.strip():
            texts.append(_checked(text))
    if not texts:
        found = f"holds only {', '.join(dict.fromkeys(others))}" if others else "is empty"
        raise AgentMessageError(f"there is no text in the message: it {found}; {_ACCEPTED}")
    return "\n".join(texts)


def _leaves(content: Any, depth: int) -> Iterator[tuple[str, str | None]]:
    """The blocks in ``content`` that contain no other: the kind of each, and its text or None."""
    if depth > MAX_DEPTH:
        raise AgentMessageError(
            f"the message is nested more than {MAX_DEPTH} levels deep; send a flatter one"
        )
    if content is None or (isinstance(content, list | tuple) and not content):
        yield "nothing", ""  # counted too, so that a message of only these is limited as well
    elif isinstance(content, str):
        yield "a string", content
    elif isinstance(content, bytes | bytearray):
        yield "bytes", _decoded(content)
    elif isinstance(content, list | tuple):
        for block in content:
            yield from _leaves(block, depth + 1)
    else:
        yield from _block(content, depth)


def _block(block: Any, depth: int) -> Iterator[tuple[str, str | None]]:
    # First, because a LangChain message has a text too: its blocks joined without a separator.
    for name in _NESTED:
        nested = _field(block, name)
        if nested is not None:
            yield from _leaves(nested, depth + 1)
            return
    kind, text = _field(block, "type"), _field(block, "text")
    if isinstance(text, str):
        yield "text", text
    elif kind == "resource_link" and _field(block, "uri") is not None:
        yield "a link", _link(block)
    elif isinstance(kind, str):
        yield f"a block of type {kind!r}", None
    elif _field(block, "blob") is not None:
        yield "a binary resource", None
    else:
        raise AgentMessageError(f"{_described(block)} is not the content of a message; {_ACCEPTED}")


def _field(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)


def _link(block: Any) -> str:
    title = _field(block, "title") or _field(block, "name")
    return f"{title}: {_field(block, 'uri')}" if title else str(_field(block, "uri"))


def _decoded(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise AgentMessageError(f"the bytes of the message are not UTF-8: {error}") from error


def _checked(text: str) -> str:
    """Return ``text`` if it can be encoded: models and databases refuse lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AgentMessageError(
            f"the text of the message cannot be encoded in UTF-8: {error}"
        ) from error
    return text


def _described(block: Any) -> str:
    if isinstance(block, Mapping):
        keys = ", ".join(repr(key) for key in list(block)[:5])
        return f"a mapping with {keys}" if keys else "an empty mapping"
    return f"an object of type {type(block).__name__}"
