"""Message: one message of a conversation, and its conversion to and from LangChain's."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from reprlib import repr as shortened
from typing import Any, Literal, TypeAlias, get_args

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.messages.tool import default_tool_parser
from uuid_utils import uuid7

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = [
    "Content",
    "Message",
    "MessageLike",
    "Role",
    "as_messages",
    "from_langchain",
    "is_message",
    "new_id",
    "requested",
    "to_langchain",
]

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
Content: TypeAlias = "str | list[str | dict[str, Any]]"
MessageLike: TypeAlias = "Message | BaseMessage | Mapping[str, Any] | str"

_ROLES = get_args(Role)


def new_id() -> str:
    """Make an id for a message: unique, and sortable by creation. Any thread; never blocks."""
    return str(uuid7())


_CLASSES: dict[str, type[BaseMessage]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "tool": ToolMessage,
    "system": SystemMessage,
}
# Fields of LangChain's messages that are fields of Message too; for a tool's message also `name`.
_MAPPED = frozenset({"content", "id", "tool_call_id", "tool_calls", "type"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its role and content, an assistant's tool calls, the call that a tool answers.

    Immutable, so any thread may read it without a lock; lists and mappings are copied when the
    message is made, and you must not mutate them afterwards. Equality compares every field; the
    hash is that of the ``id``.

    Attributes:
        role: ``"user"``, ``"assistant"``, ``"tool"`` or ``"system"``.
        content: Text, or a list of content blocks as LangChain has them. None becomes ``""``.
        tool_calls: The calls of an assistant, each as it was given: LangChain's ``name``, ``args``
            and ``id``, or OpenAI's ``id`` and ``function``.
        tool_call_id: The ``id`` of the call that a tool's message answers.
        tool_name: The name of that tool.
        id: Unique. A new one is sortable by creation (a UUIDv7, RFC 9562).
        extra: Other fields of the LangChain message from which this one was made, for converting
            back: token counts, artifacts, data that a provider expects to be sent again.

    Raises:
        InvalidArgumentError: ``role`` is not one of the four, a tool call or ``extra`` cannot be
            read, or a field was given that a message of this role does not have.
        InvalidTypeError: ``content`` is neither text nor content blocks, or an id or a name is not
            a string.
    """

    role: Role
    content: Content
    _: KW_ONLY
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    id: str = field(default_factory=new_id)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check the fields, and copy those that are mutable."""
        if self.role not in _ROLES:
            raise InvalidArgumentError(
                f"role must be {_either(_ROLES)}, not {shortened(self.role)}"
            )
        if not isinstance(self.content, str):
            object.__setattr__(self, "content", _copied(self.content))
        if self.tool_calls != ():
            object.__setattr__(self, "tool_calls", _read_calls(self.role, self.tool_calls))
        if self.role != "tool" and (self.tool_call_id, self.tool_name) != (None, None):
            raise InvalidArgumentError(
                "tool_call_id and tool_name belong to a message of a tool, "
                f"not to one of the {self.role}"
            )
        for name in ("id", "tool_call_id", "tool_name"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "id"):
                raise InvalidTypeError(f"{name} must be a string, not {shortened(value)}")
        if self.extra:
            object.__setattr__(self, "extra", _read_extra(self))

    def __hash__(self) -> int:
        """Hash the id, because contents need not be hashable."""
        return hash(self.id)

    @staticmethod
    def of(thing: MessageLike) -> Message:
        """Return ``thing`` as a Message. Any thread; never blocks.

        Args:
            thing: A Message, taken as it is; a LangChain message; a mapping as OpenAI or LangChain
                write messages; or text, which is then the user's.

        Raises:
            InvalidArgumentError: It has a role that is not one of the four, or cannot be read.
            InvalidTypeError: It is none of these.
        """
        if isinstance(thing, Message):
            return thing
        if isinstance(thing, str):
            return Message("user", thing)
        if isinstance(thing, BaseMessage):
            return _from_langchain(thing)
        if isinstance(thing, Mapping):
            return _from_mapping(thing)
        raise InvalidTypeError(
            "a message must be a Message, a LangChain message, a mapping or text, "
            f"not {shortened(thing)}"
        )


def is_message(thing: object) -> bool:
    """Whether `requested` would accept ``thing`` as messages. Any thread; never blocks."""
    if isinstance(thing, Mapping):
        return "role" in thing or "messages" in thing
    return isinstance(thing, str | Message | BaseMessage) or _is_pair(thing)


def requested(request: Any) -> tuple[Message, ...]:
    """Return the messages of a request, in any of the forms that LangGraph accepts. Any thread.

    Raises:
        InvalidArgumentError, InvalidTypeError: It contains none.
    """
    if isinstance(request, Mapping) and "messages" in request:
        request = request["messages"]
    # Within a list a pair may be a list too, as JSON has no tuples.
    within = isinstance(request, list)
    return as_messages(
        {"role": thing[0], "content": thing[1]} if _is_pair(thing, within=within) else thing
        for thing in (request if within else [request])
    )


def _is_pair(thing: Any, *, within: bool = False) -> bool:
    """Whether it is a role and a content, which LangChain accepts as a message."""
    is_sequence = isinstance(thing, tuple) or (within and isinstance(thing, list))
    return is_sequence and len(thing) == 2 and isinstance(thing[0], str)


def as_messages(things: Iterable[MessageLike]) -> tuple[Message, ...]:
    """Return each of ``things`` as `Message.of` does. Any thread; never blocks.

    Raises:
        InvalidArgumentError, InvalidTypeError: As `Message.of`; or ``things`` is a single message,
            or cannot be iterated over.
    """
    single = isinstance(things, str | Mapping | BaseMessage)
    if single or not isinstance(things, Iterable):
        raise InvalidTypeError(f"a list of messages is needed, not {shortened(things)}")
    return tuple(Message.of(thing) for thing in things)


def to_langchain(messages: Iterable[Message]) -> list[BaseMessage]:
    """Return ``messages`` as LangChain's. Any thread; never blocks.

    They belong to the caller: changing one changes no Message. Each keeps its ``id``.
    """
    return [_to_langchain(message) for message in messages]


def from_langchain(messages: Iterable[BaseMessage]) -> list[Message]:
    """Return LangChain's ``messages`` as Messages. Any thread; never blocks.

    Converting there and back preserves them, except that a missing ``id`` is added, and chunks
    become whole messages.

    Raises:
        InvalidArgumentError: One is neither human, AI, tool nor system.
        InvalidTypeError: One is not a LangChain message.
    """
    return [_from_langchain(message) for message in messages]


def _to_langchain(message: Message) -> BaseMessage:
    fields = _copied_extra(message.extra)
    fields |= {"id": message.id, "content": deepcopy(message.content)}
    if message.role == "assistant":
        calls, invalid = _parsed(message.tool_calls)
        fields["tool_calls"] = calls
        fields["invalid_tool_calls"] = [*fields.get("invalid_tool_calls", ()), *invalid]
    elif message.role == "tool":
        # LangChain requires a string here.
        fields["tool_call_id"] = message.tool_call_id or ""
        fields["name"] = message.tool_name
    return _CLASSES[message.role](**fields)


def _from_langchain(message: BaseMessage) -> Message:
    if not isinstance(message, BaseMessage):
        raise InvalidTypeError(f"a LangChain message is needed, not {shortened(message)}")
    if isinstance(message, BaseMessageChunk):
        message = message_chunk_to_message(message)
    role: Any = next((role for role, cls in _CLASSES.items() if isinstance(message, cls)), None)
    if role is None:
        raise InvalidArgumentError(
            f"a {type(message).__name__} has no role here; it must be one of {_either(_ROLES)}"
        )
    own: dict[str, Any] = {} if message.id is None else {"id": message.id}
    if isinstance(message, AIMessage):
        own["tool_calls"] = tuple(message.tool_calls)
    elif isinstance(message, ToolMessage):
        own |= {"tool_call_id": message.tool_call_id or None, "tool_name": message.name}
    return Message(role, message.content, extra=_extra(message, role), **own)


def _extra(message: BaseMessage, role: Role) -> dict[str, Any]:
    mapped = _MAPPED | {"name"} if role == "tool" else _MAPPED
    defaults = _defaults_of(type(message))
    extra = {}
    for name, value in message:
        if name in mapped:
            continue
        default = defaults.get(name)
        # An artifact may be anything, even something that cannot be compared: its default is None.
        if value is not default and (default is None or value != default):
            extra[name] = value
    return extra


@functools.cache
def _defaults_of(cls: type[BaseMessage]) -> dict[str, Any]:
    """The default of each field of ``cls``; only to compare with. Cached: pydantic is slow."""
    fields = cls.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


def _from_mapping(mapping: Mapping[str, Any]) -> Message:
    fields = dict(mapping)
    if "tool_name" in fields:
        fields["name"] = fields.pop("tool_name")
    if fields.get("role") == "tool":
        fields.setdefault("tool_call_id", "")
    calls = fields.pop("tool_calls", None)  # kept as given, so not converted by LangChain
    try:
        (converted,) = convert_to_messages([fields])
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{shortened(mapping)} is not a message; it must have a content, "
            f"and a role, {_either(_ROLES)}"
        ) from error
    message = _from_langchain(converted)
    return replace(message, tool_calls=calls) if calls else message


def _read_extra(message: Message) -> dict[str, Any]:
    try:
        own = _copied_extra(message.extra)
        _to_langchain(message)  # a check: it is converted later
    except Exception as error:
        raise InvalidArgumentError(
            "extra must be a mapping of further fields of LangChain's message, each of which can "
            f"be copied, unlike {shortened(message.extra)}"
        ) from error
    return own


def _copied_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    # An artifact may be anything, even something that cannot be copied.
    return {name: each if name == "artifact" else deepcopy(each) for name, each in extra.items()}


def _copied(content: Any) -> Content:
    if content is None:
        return ""
    try:
        return _copied_blocks(content)
    except Exception as error:  # from anything inside, or because it is nested too deeply
        raise InvalidTypeError(
            f"content must be text or a list of content blocks, not {shortened(content)}; "
            "convert it with str() or json.dumps()"
        ) from error


def _copied_blocks(content: Any) -> list[str | dict[str, Any]]:
    if not isinstance(content, list | tuple) or not all(
        isinstance(b, str | Mapping) for b in content
    ):
        raise TypeError("these are not content blocks")
    return [block if isinstance(block, str) else deepcopy(dict(block)) for block in content]


def _read_calls(role: Role, calls: Any) -> tuple[Mapping[str, Any], ...]:
    try:
        own = tuple(deepcopy(dict(call)) for call in calls or ())
        good, bad = _parsed(own)
        AIMessage("", tool_calls=good, invalid_tool_calls=bad)  # a check: it is converted later
    except Exception as error:
        raise InvalidArgumentError(
            "a tool call must have a name, args and an id as LangChain's, "
            f"or an id and a function as OpenAI's, unlike those in {shortened(calls)}"
        ) from error
    if own and role != "assistant":
        raise InvalidArgumentError(
            f"tool_calls belong to a message of the assistant, not to one of the {role}"
        )
    return own


def _parsed(calls: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The calls in LangChain's form, and the calls with arguments that are not JSON."""
    good: list[Any] = []
    bad: list[Any] = []
    for call in calls:
        if "function" not in call:
            good.append(call)
            continue
        parsed, invalid = default_tool_parser([dict(call)])
        good += parsed
        bad += invalid
    return good, bad


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
