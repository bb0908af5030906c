"""Access: the clients, and the web pages, that may call the agents of an HTTP server.

What breaks without it: a page in a browser can call any server on its machine or network, under a
name of its own that resolves to that server's address (DNS rebinding). By default the SDK checks
the host and the origin of a request only for servers on loopback addresses.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, cast

from rxlanggraph.agent.mcp.sdk import (
    AccessToken,
    AuthSettings,
    TokenVerifier,
    TransportSecuritySettings,
)
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.validation import (
    LOOPBACK,
    check_hosts,
    check_origins,
    check_secret,
    is_loopback,
    shortened,
)

__all__ = ["Access", "make_access"]

_VERIFY_SECONDS = 10.0
"""Seconds for a token verifier, which may ask another server. A guess."""

_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 # compared with, not listened on


@dataclass(frozen=True)
class Access:
    """The checks of each request, as settings of the SDK.

    Attributes:
        security: The allowed hosts and origins.
        auth: Arguments of the SDK's server: the token verifier and its settings; empty without.
        is_open: Whether the server can be reached from other machines, and called without a token.
    """

    security: TransportSecuritySettings
    auth: dict[str, Any]
    is_open: bool


def make_access(
    host: str,
    allowed_hosts: Collection[str] | None,
    allowed_origins: Collection[str] | None,
    token: str | TokenVerifier | None,
    auth: AuthSettings | None,
) -> Access:
    """Make the settings from the arguments of `serve_http` of these names.

    Any thread; never blocks.

    Raises:
        InvalidArgumentError, InvalidTypeError: An argument is not as described there.
    """
    if allowed_hosts is None:
        own = () if host in _ALL_ADDRESSES or host in LOOPBACK else (host,)
        allowed_hosts = (*LOOPBACK, *own)
    hosts = check_hosts("allowed_hosts", allowed_hosts)
    if allowed_origins is not None:
        origins = check_origins("allowed_origins", allowed_origins)
    else:
        origins = tuple(f"{scheme}://{name}" for name in hosts for scheme in ("http", "https"))
        origins = tuple(_with_any_port(origins))
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=list(_with_any_port(hosts)),
        allowed_origins=list(origins),
    )
    return Access(security, _auth(token, auth), token is None and not is_loopback(host))


def _with_any_port(names: Collection[str]) -> Iterator[str]:
    """Add a pattern for any port, in the SDK's syntax, to each name without a port."""
    for name in names:
        yield name
        if not name.rpartition(":")[2].isdecimal():
            yield f"{name}:*"


# -- tokens ----------------------------------------------------------------------------------------


class _SingleTokenVerifier:
    """A token verifier, for the SDK, that accepts one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Compare in constant time, which does not reveal how many characters are right."""
        if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return AccessToken(token=token, client_id="token", scopes=[])
        return None


class _TimeLimitedVerifier:
    """A verifier with a timeout: one that hangs would occupy a connection for each request."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        """Verify the token with the wrapped verifier.

        Raises:
            TimeoutError: It took too long; the client gets status 500.
        """
        async with asyncio.timeout(_VERIFY_SECONDS):
            return await self._verifier.verify_token(token)


def _auth(token: object, auth: object) -> dict[str, Any]:
    if token is None:
        if auth is not None:
            raise InvalidArgumentError("auth needs a token: pass the SDK's token verifier")
        return {}
    if isinstance(token, str):
        check_secret("token", token)
        if auth is not None:
            raise InvalidArgumentError(
                "auth is for a token verifier, not for a token; leave it out, or pass a verifier"
            )
        verifier: Any = _SingleTokenVerifier(token)
    elif callable(getattr(token, "verify_token", None)):
        verifier = _TimeLimitedVerifier(cast("TokenVerifier", token))
    else:
        raise InvalidTypeError(
            f"token must be a string or one of the SDK's token verifiers, not an object of type "
            f"{type(token).__name__}"
        )
    if not isinstance(auth, AuthSettings | None):
        raise InvalidTypeError(f"auth must be the SDK's AuthSettings, not {shortened(auth)}")
    return {"token_verifier": verifier, "auth": auth or _no_issuer()}


def _no_issuer() -> AuthSettings:
    """Settings without an issuer: the SDK requires one, but shows it only beside a resource."""
    return AuthSettings.model_validate(
        {"issuer_url": "https://issuer.invalid", "resource_server_url": None}
    )
