"""Spans as they are exported, with those that were begun and never ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from behave.runner import Context
from opentelemetry.context import Context as SpanParent
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext

from support.concurrency.waiting import Log, thread

__all__ = ["Received", "Receiver", "Spans", "drawn"]


class Spans(SpanProcessor):
    """Collects the spans of a provider."""

    def __init__(self) -> None:
        self.started, self.ended = Log(), Log()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)
        self.tracer = self.provider.get_tracer("the test's own")

    def on_start(self, span: Span, parent_context: SpanParent | None = None) -> None:
        self.started.add(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.add(span)

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.ended)

    def named(self, *beginnings: str) -> list[ReadableSpan]:
        """The spans whose names begin with one of these, by their start."""
        found = [span for span in self if span.name.startswith(beginnings)]
        return sorted(found, key=lambda span: span.start_time)

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self if span.name == name]
        return span

    def by_id(self) -> dict[int, ReadableSpan]:
        return {span.context.span_id: span for span in self}

    def linked(self, span: ReadableSpan) -> list[str]:
        """The names of what ``span`` is linked to."""
        known = self.by_id()
        return [known[link.context.span_id].name for link in span.links]

    def open(self) -> list[str]:
        """The names of the spans that were started and have not ended, or have ended twice."""
        ended = [span.context.span_id for span in self]
        assert len(ended) == len(set(ended)), "a span has ended twice"
        return [span.name for span in self.started if span.context.span_id not in set(ended)]

    def exported(self) -> str:
        """All that is exported of the spans."""
        return "\n".join(span.to_json() for span in self)


def drawn(spans: Iterable[ReadableSpan | Received]) -> str:
    """The spans as a tree, by their names."""
    below: dict[int | None, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda span: span.name):
        below.setdefault(None if span.parent is None else span.parent.span_id, []).append(span)

    def draw(parent: int | None, indent: str) -> Iterator[str]:
        for span in below.get(parent, ()):
            yield indent + span.name
            yield from draw(span.context.span_id, f"{indent}  ")

    return "\n".join(draw(None, ""))


@dataclass
class Received:
    """A span as it was exported."""

    name: str
    service: str
    context: SpanContext
    parent: SpanContext | None
    links: list[SpanContext]
    text: str


def _received(service: str, span: Any) -> Received:
    trace_id = int.from_bytes(span.trace_id)
    return Received(
        span.name,
        service,
        _context_of(trace_id, span.span_id),
        _context_of(trace_id, span.parent_span_id) if span.parent_span_id else None,
        [_context_of(int.from_bytes(link.trace_id), link.span_id) for link in span.links],
        str(span),
    )


def _context_of(trace_id: int, span_id: bytes) -> SpanContext:
    return SpanContext(trace_id, int.from_bytes(span_id), is_remote=True)


class Receiver:
    """A server that takes traces by OTLP over HTTP, as a collector does."""

    def __init__(self, context: Context) -> None:
        self.spans = spans = Log()
        self.received = received = Log()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    attributes = {each.key: each.value for each in resource.resource.attributes}
                    service = attributes["service.name"].string_value
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            spans.add((scope.scope.name, scope.schema_url, span.name))
                            received.add(_received(service, span))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        serving = thread(server.serve_forever, 0.01)
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        self.url = f"{self.endpoint}/v1/traces"

        def end() -> None:
            server.shutdown()
            serving.result(60)
            server.server_close()

        context.add_cleanup(end)
