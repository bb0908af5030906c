"""RunTraces: a span for each message, for its run, for each node, and for the run of an agent.

    message GRAPH             from the arrival of the message to the real end of its run
    └── invoke_workflow GRAPH     the run, if it begins: the conventions' span of a workflow
        ├── node NAME             each node that has ended, at each attempt
        └── ...                   the spans of the nodes' own code, and
            invoke_agent AGENT    the run of an agent, wherever it is called

What breaks with one span for both: the wait of a message counts as time of the operation, which the
conventions define as the run's, and messages that never begin are shown as runs.

Two rules.

1. The spans of a message are ended by the call that takes them out of the table, in a ``finally``:
   whatever a value of the user's does when it is described, none stays open.
2. The span of a run is attached to the context of the run and never detached: that context ends
   with the run, and its end may be told in another one.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.user_code import contain
from rxlanggraph.hooks import (
    AgentEnded,
    AgentStarted,
    Hooks,
    NodeEnded,
    NodeStatus,
    RunEnded,
    RunQueued,
    RunStarted,
)
from rxlanggraph.messages import Status as RunStatus
from rxlanggraph.messages import StreamMessage
from rxlanggraph.telemetry.api import (
    SCHEMA_URL,
    SCOPE,
    VERSION,
    Link,
    Span,
    SpanContext,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    attach,
    check_provider,
    clean,
    get_tracer,
    nanoseconds,
    set_span_in_context,
    span_named_by,
    text_of,
    type_name,
)
from rxlanggraph.telemetry.sources import Sources

__all__ = ["RunTraces"]

_log = logging.getLogger("rxlanggraph")
# The others are neither failures nor the end of the matter: a run that was cancelled on purpose, or
# one that asks.
_FAILURES = frozenset({"error", "timed_out", "rejected"})


class _Spans:
    """The spans of one message that are open.

    Args:
        future: The future of the run. Held weakly, as its context refers to this.
        message: That of the message.
        attributes: What it has in common with that of the run.
        linked: Whether it has its link already.
        likely: Otherwise, what to link it to at its end if nothing better is known by then.
    """

    __slots__ = ("_future", "attributes", "begun", "likely", "linked", "message", "run")

    def __init__(
        self,
        future: Future[StreamMessage],
        message: Span,
        attributes: dict[str, str],
        *,
        linked: bool,
        likely: SpanContext | None,
    ) -> None:
        self._future = weakref.ref(future)
        self.message = message
        self.attributes = attributes  # never changed
        self.linked = linked
        self.likely = likely
        # Written at the start of the run, on the loop's thread; read by any after that.
        self.run: Span | None = None
        self.begun = 0  # nanoseconds

    def have_led_to(self, message: StreamMessage) -> bool:
        """Whether ``message`` is the result of the run, or was made of it. Any thread."""
        future = self._future()
        if message.source is None or future is None or not future.done() or future.cancelled():
            return False
        if future.exception() is not None:
            return False
        return future.result().id in {message.id, message.source.id}


class RunTraces(Hooks):
    """Hooks that make a trace of each message, with OpenTelemetry's API.

    Give it to `RxPyLangGraphBridge.add_hooks` and `BaseAgent.add_hooks`, one object to all bridges
    and agents of a process: a message
    that came out of another run is linked to the span of the message of that run. The parent of a
    message's span is the current span of the code that sent it. The code of nodes, in threads too,
    has the span of its run as its current span. No thread is blocked, unless the span processor of
    the SDK blocks it.

    Args:
        tracer_provider: What makes the tracer; None: the global one.
        content: Whether what messages contain, and the texts of exceptions, are in the spans.
        nodes: Whether nodes have spans.

    Raises:
        InvalidTypeError: ``tracer_provider`` makes no tracers.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        content: bool = False,
        nodes: bool = True,
    ) -> None:
        check_provider("tracer_provider", tracer_provider, "get_tracer")
        self._tracer: Tracer = get_tracer(SCOPE, VERSION, tracer_provider, SCHEMA_URL)
        self._content = content
        self._sources = Sources()
        # The run that code is part of, and its observers: those are told of its result before the
        # hooks. Of this object alone: others may have other providers.
        self._within: ContextVar[_Spans | None] = ContextVar("rxlanggraph_run", default=None)
        # By the future of the run. Single calls of a dict, by any thread.
        self._open: dict[Future[StreamMessage], _Spans] = {}
        # A leaf, held for two lines: what `close` takes out has its run's span, or that is ended
        # where it is begun.
        self._closing = fork_safe_rlock()
        # By the id of a message that is to be sent. Likewise.
        self._begun: dict[str, Span] = {}
        # Those of the runs of agents, by their object. Likewise.
        self._agents: dict[object, Span] = {}
        # By thread: the future that has ended last there, and its span.
        self._last = threading.local()
        # Whether what `begin` or `abandon` contained was logged. Only ever set, by any thread.
        self._was_logged = False
        if not nodes:
            # A hook that is not overridden costs nothing, and this one costs callbacks.
            self.on_node = super().on_node  # type: ignore[method-assign]

    def close(self) -> None:
        """End the spans that are open. Any thread; never blocks; idempotent.

        Only needed if the hooks were disposed of while runs were in flight, of whose end they are
        not told then. A bridge that is closed leaves no span open. If a span processor raises, the
        others are ended all the same, and one of the exceptions is raised.
        """
        begun: tuple[dict[Any, Span], ...] = (self._begun, self._agents)
        with ExitStack() as stack:
            for future in list(self._open):
                with self._closing:
                    spans = self._open.pop(future, None)
                if spans is not None:
                    stack.callback(_end, spans, None)
            for spans_by_key in begun:
                for key in list(spans_by_key):
                    span = spans_by_key.pop(key, None)
                    if span is not None:
                        stack.callback(span.end)

    def span_of(self, event: RunEnded) -> SpanContext | None:
        """Return the ids of the span of a message, for a hook that is told of its end.

        In the thread of that hook, before or after `on_ended`; None if it has no span.
        """
        spans = self._open.get(event.future)
        if spans is not None:
            return spans.message.get_span_context()
        # One event at a time goes to all hooks of a thread.
        ended: tuple[weakref.ref[object], SpanContext] | None = getattr(self._last, "ended", None)
        return ended[1] if ended is not None and ended[0]() is event.future else None

    def begin(self, message: StreamMessage) -> str | None:
        """Start the span of a message before it is sent, and return its ids. Any thread.

        For a queue that keeps them, so that another attempt at the message is linked to this one,
        in another process too, even if this one dies of it: the metadata of the other message has
        them as ``traceparent``. The parent of the span is the current span of this call. If the
        message is not sent after all, call `abandon`.

        Returns:
            The ids in the form of W3C's header; None if nothing records traces, or what should
            raises, which is logged once.
        """
        try:
            span = self._tracer.start_span("message")
        except Exception as error:
            self._contain(error)
            return None
        ids = span.get_span_context()
        if not ids.is_valid:
            return None
        self.abandon(message)
        self._begun[message.id] = span
        return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{ids.trace_flags:02x}"

    def abandon(self, message: StreamMessage) -> None:
        """End the span that `begin` has started, unless the message was sent. Any thread.

        What a span processor raises is logged once, and changes nothing.
        """
        span = self._begun.pop(message.id, None)
        if span is None:
            return
        try:
            span.end()
        except Exception as error:
            self._contain(error)

    def on_queued(self, event: RunQueued) -> None:
        """Start the span of the message."""
        if event.future in self._open:  # these hooks were added to the bridge twice
            return
        message, source = event.message, self._source_of(event.message)
        likely = self._sources.likely_of(message) if source is None else None
        named = span_named_by(message.metadata.get("traceparent"))
        links = [Link(each) for each in (source, named) if each is not None]
        name, attributes = clean(f"message {event.name}"), _attributes(event)
        span = self._begun.pop(message.id, None)
        if span is None:
            start = nanoseconds(event.time)
            span = self._tracer.start_span(
                name, attributes=attributes, links=links, start_time=start
            )
        else:
            span.update_name(name)
            span.set_attributes(attributes)
            for link in links:
                span.add_link(link.context)
        self._open[event.future] = _Spans(
            event.future, span, attributes, linked=source is not None, likely=likely
        )
        self._sources.note_message(message, span.get_span_context())
        if self._content and span.is_recording():
            span.set_attribute("rxlanggraph.input", _text(message.content))

    def on_started(self, event: RunStarted) -> None:
        """Start the span of the run, and make it the current one of its context."""
        spans = self._open.get(event.future)
        if spans is None or spans.run is not None:
            return
        spans.message.set_attribute("rxlanggraph.waited", event.waited)
        spans.begun = nanoseconds(event.time)
        span = self._tracer.start_span(
            clean(f"invoke_workflow {event.name}"),
            set_span_in_context(spans.message),
            attributes={"gen_ai.operation.name": "invoke_workflow", **spans.attributes},
            start_time=spans.begun,
        )
        with self._closing:
            spans.run = span
            is_open = event.future in self._open
        attach(set_span_in_context(span))
        self._within.set(spans)
        if not is_open:  # closed meanwhile, before it had this span
            span.end()

    def on_node(self, event: NodeEnded) -> None:
        """Make the span of a node, which has ended."""
        spans = self._open.get(event.future)
        if spans is None or spans.run is None or not spans.run.is_recording():
            return
        end = nanoseconds(event.time)
        span = self._tracer.start_span(
            clean(f"node {event.node}"),
            set_span_in_context(spans.run),
            attributes={
                "rxlanggraph.node": clean(event.node),
                "rxlanggraph.attempt": event.attempt,
            },
            # The duration is of another clock: not before the run.
            start_time=max(spans.begun, end - nanoseconds(event.duration)),
        )
        try:
            self._tell(span, event.status, event.error, event.time)
        finally:
            span.end(end)

    def on_agent_started(self, event: AgentStarted) -> None:
        """Start the span of a run of an agent, and make it the current one of its context."""
        if event.run in self._agents:  # these hooks were added to the agent twice
            return
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": clean(event.agent),
        }
        if event.thread_id is not None:
            attributes["gen_ai.conversation.id"] = clean(event.thread_id)
        start = nanoseconds(event.time)
        span = self._tracer.start_span(
            clean(f"invoke_agent {event.agent}"), attributes=attributes, start_time=start
        )
        self._agents[event.run] = span
        attach(set_span_in_context(span))

    def on_agent_ended(self, event: AgentEnded) -> None:
        """End the span of a run of an agent."""
        span = self._agents.pop(event.run, None)
        if span is None:
            return
        try:
            self._tell(span, event.status, event.error, event.time)
        finally:
            span.end(nanoseconds(event.time))

    def on_ended(self, event: RunEnded) -> None:
        """End the spans of the message and of its run."""
        spans = self._open.pop(event.future, None)
        if spans is None:
            return
        self._last.ended = weakref.ref(event.future), spans.message.get_span_context()
        try:
            self._describe(spans, event)
        finally:
            _end(spans, nanoseconds(event.time))

    def _contain(self, error: Exception) -> None:
        """Log what the SDK, or what the application has added to it, raises. Any thread."""
        if not self._was_logged:
            self._was_logged = True
            contain(error, _log, "a span of a message could not be begun or ended; logged once")

    def _source_of(self, message: StreamMessage) -> SpanContext | None:
        """Return the span of the message whose run has led to ``message``, if that is known.

        A result is known once its hooks were told of the end, which is after its observers were. In
        the context of the run, its observers know it before.
        """
        known, within = self._sources.of(message), self._within.get()
        if known is None and within is not None and within.have_led_to(message):
            return within.message.get_span_context()
        return known

    def _describe(self, spans: _Spans, event: RunEnded) -> None:
        message, run, result = spans.message, spans.run, event.result
        if result is not event.message:  # it passes through, and is the result of another run
            self._sources.note_result(result, message.get_span_context())
        if not spans.linked:
            source = self._sources.of(event.message) or spans.likely
            if source is not None:
                message.add_link(source)
        if run is not None:
            _tell_status(message, event.status, event.error)
            run.set_attribute("rxlanggraph.attempts", event.attempt)
        self._tell(message if run is None else run, event.status, event.error, event.time)
        if self._content and run is not None and run.is_recording():
            run.set_attribute("rxlanggraph.output", _text(result.content))

    def _tell(
        self, span: Span, status: RunStatus | NodeStatus, error: BaseException | None, time: float
    ) -> None:
        """Say in ``span`` how it ended; the text of the error only with the content."""
        text = clean(text_of(error)) if self._content and error is not None else None
        _tell_status(span, status, error, text)
        if error is not None and text is not None:
            what = {"exception.type": type_name(error), "exception.message": text}
            span.add_event("exception", what, nanoseconds(time))


def _end(spans: _Spans, time: int | None) -> None:
    try:
        if spans.run is not None:
            spans.run.end(time)
    finally:
        spans.message.end(time)


def _attributes(event: RunQueued) -> dict[str, str]:
    message = event.message
    attributes = {
        "gen_ai.workflow.name": clean(event.name),
        "rxlanggraph.message.id": clean(message.id),
    }
    if message.thread_id is not None:
        attributes["gen_ai.conversation.id"] = clean(message.thread_id)
    return attributes


def _tell_status(
    span: Span,
    status: RunStatus | NodeStatus,
    error: BaseException | None,
    text: str | None = None,
) -> None:
    span.set_attribute("rxlanggraph.status", status)
    if status in _FAILURES:
        span.set_attribute("error.type", status if error is None else type_name(error))
        span.set_status(Status(StatusCode.ERROR, text))


def _text(value: Any) -> str:
    """Return ``value`` as JSON, with the repr of what is not JSON's."""
    try:
        return clean(json.dumps(value, default=repr, ensure_ascii=False))
    except Exception:  # a circle, keys that are not strings, a repr that raises
        return f"<{type(value).__qualname__}>"
