"""The imports of Starlette and sse-starlette, or an error that names the extra ``live``."""

from __future__ import annotations

from rxlanggraph.errors import MissingExtraError

try:
    from sse_starlette import EventSourceResponse
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError(
        "the live page needs Starlette, sse-starlette and uvicorn; install them with "
        "pip install 'rxlanggraph[live]'"
    ) from error

__all__ = [
    "ASGIApp",
    "ClientDisconnect",
    "EventSourceResponse",
    "HTTPException",
    "Headers",
    "JSONResponse",
    "Message",
    "MutableHeaders",
    "PlainTextResponse",
    "Receive",
    "RedirectResponse",
    "Request",
    "Response",
    "Route",
    "Scope",
    "Send",
    "Starlette",
]
