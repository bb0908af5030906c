"""Which span a result came from, so that the message that it leads to is linked to that span."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.messages import StreamMessage
from rxlanggraph.telemetry.api import SpanContext

__all__ = ["Sources"]

# How many messages, and results, are remembered: a few megabytes. A guess: a result that comes to
# its next stage later than that many others has no link.
_REMEMBERED = 10_000


class _Recent:
    """The spans of the last ids that were noted. Any thread; never blocks."""

    def __init__(self) -> None:
        # A leaf, held for a few steps of a dict. An RLock, because signal handlers send messages
        # too. Guards the dict, whose order is that of the notes.
        self._lock = fork_safe_rlock()
        # An OrderedDict: of a dict, the first key is found behind all those that were removed.
        self._spans: OrderedDict[str, SpanContext] = OrderedDict()

    def note(self, key: str, span: SpanContext) -> None:
        with self._lock:
            self._spans.pop(key, None)  # it comes last now
            self._spans[key] = span
            if len(self._spans) > _REMEMBERED:
                self._spans.popitem(last=False)

    def find(self, keys: Iterable[str]) -> SpanContext | None:
        """Return the span of the first of ``keys`` that is known."""
        with self._lock:
            return next((self._spans[key] for key in keys if key in self._spans), None)


class Sources:
    """The spans of the messages of late. Any thread; never blocks."""

    def __init__(self) -> None:
        self._messages, self._results = _Recent(), _Recent()

    def note_message(self, message: StreamMessage, span: SpanContext) -> None:
        """Note the span of ``message``, which has arrived."""
        self._messages.note(message.id, span)

    def note_result(self, result: StreamMessage, span: SpanContext) -> None:
        """Note the span of the message that ``result`` answers."""
        self._results.note(result.id, span)

    def of(self, message: StreamMessage) -> SpanContext | None:
        """Return the span that ``message`` came out of, if its result has been noted.

        Of a result that goes on as it is, by its own id; of a message made of a result
        (``source=result``), by the id of that.
        """
        source = message.source
        return None if source is None else self._results.find((message.id, source.id))

    def likely_of(self, message: StreamMessage) -> SpanContext | None:
        """Return the latest span of the source of ``message``.

        The result may come from another run on the same message, if that went to several graphs.
        """
        source = message.source
        return None if source is None else self._messages.find((source.id,))
