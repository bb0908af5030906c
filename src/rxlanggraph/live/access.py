"""Access: who may see the page, and what browsers are told about it.

What breaks without it: any page in a browser can send requests to a server on the browser's own
machine, under a name of its own that resolves to that machine (DNS rebinding) or across ports, and
so cancel runs, and read what they work on.

- Every request needs the token: as ``Authorization: Bearer``, or as a cookie, which a visit to
  ``?token=...`` sets. Other sites do not send the cookie (``SameSite=Strict``), and scripts do not
  see it (``HttpOnly``). The token itself is not in it: servers on other ports get it too.
- The name of the host is one of those that are allowed.
- A request of a page is that of a page on this very host and port: pages on other ports of a
  machine are of the same *site*. With the cookie, what changes something names its page.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import quote

from rxlanggraph.validation import LOOPBACK, check_hosts, check_secret

__all__ = ["HEADERS", "Access", "AccessDenied"]

HEADERS = {
    # Nothing from elsewhere, nothing inline; and in no frame, where clicks can be stolen.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every response."""
# Characters of a token. One that is made here has 256 bits, in 43 characters.
_SHORTEST = 16


class AccessDenied(NamedTuple):
    """Why a request is refused."""

    status: int
    reason: str


class Access:
    """The checks of each request. Immutable; any thread; nothing blocks.

    Args:
        token: What each request must send: 16 or more visible ASCII characters; None makes one.
        allowed_hosts: The names of the host in requests, each with a port or for any; None: those
            of the loopback interface.
        any_address: Whether addresses are allowed as well, which no name can be rebound to.

    Raises:
        InvalidArgumentError, InvalidTypeError: An argument is not as described.
    """

    def __init__(
        self,
        token: str | None = None,
        allowed_hosts: Collection[str] | None = None,
        *,
        any_address: bool = False,
    ) -> None:
        if token is None:
            token = secrets.token_urlsafe(32)
        self.token = check_secret("token", token, least=_SHORTEST)
        self._hosts = frozenset(
            check_hosts("allowed_hosts", LOOPBACK if allowed_hosts is None else allowed_hosts)
        )
        self._any_address = any_address
        digest = hmac.digest(self.token.encode(), b"rxlanggraph live page", hashlib.sha256).hex()
        # Cookies are of a host, whatever the port: each page has a name of its own for its cookie.
        self._cookie_name, self._cookie = f"rxlanggraph-live-{digest[:8]}", digest[8:]

    def refuse(self, method: str, headers: Mapping[str, str]) -> AccessDenied | None:
        """Return why a request is refused; None if it is not.

        Args:
            method: That of the request.
            headers: Those of the request, by their names in lower case.
        """
        host = headers.get("host", "").lower()
        if not self._is_allowed(host):
            return AccessDenied(421, f"this page is not known as {host[:100]!r}: see allowed_hosts")
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host:
            return AccessDenied(403, "this request comes from another page")
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(bearer.strip()):
            return None
        if not self._has_cookie(headers.get("cookie", "")):
            return AccessDenied(
                401, "this page needs its token: open the address that has it, ending in ?token=..."
            )
        if method not in ("GET", "HEAD") and origin is None:
            return AccessDenied(403, "this request does not say which page it comes from")
        return None

    def is_token(self, value: str) -> bool:
        """Compare in constant time, which does not reveal how many characters are right."""
        return hmac.compare_digest(value.encode("utf-8", "surrogateescape"), self.token.encode())

    def cookie(self, path: str, *, secure: bool) -> str:
        """Return the header that sets the cookie for all below ``path``, which is decoded."""
        suffix = "; Secure" if secure else ""
        # As browsers write it in requests; and it ends neither the attribute nor the header.
        path = quote(path, safe="/:@!$&'()*+,=~[]|")
        return f"{self._cookie_name}={self._cookie}; Path={path}; HttpOnly; SameSite=Strict{suffix}"

    def _is_allowed(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdecimal():
            name = host
        if name in self._hosts or host in self._hosts:
            return True
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def _has_cookie(self, header: str) -> bool:
        # Not with the standard library, which stops at the first malformed cookie: browsers also
        # send those that servers on other ports of this machine have set.
        for cookie in header.split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self._cookie_name:
                return hmac.compare_digest(
                    value.encode("utf-8", "surrogateescape"), self._cookie.encode()
                )
        return False
