"""URLs of servers: refusing ambiguous ones, and masking passwords.

Passwords in URLs are often generated, and often not escaped. A reserved character in a password
turns the rest of it into a host, a port, a path or an option, and parsers quote these in their
errors. So a URL is refused here, before a parser sees it, if part of a password may have become
something else; the error quotes none of it.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["check_address", "has_password", "masked", "may_be_quoted", "with_password"]

_MASK = "***"
_USER_END = re.compile("[:/?#]")
# Servers, separated by commas: each a name, or an address in brackets, and perhaps a port.
_SERVERS = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^\[\]:,]*)(:[0-9]*)?(,|$)")
_ESCAPED = re.compile("%(?!00)[0-9A-Fa-f]{2}")
_PASSWORD_OPTION = re.compile(r"[?&][^=&]*(password|passwd|secret|token)[^=&]*=", re.IGNORECASE)
# Options whose values may contain an @.
_NAME_OPTIONS = ("user", "username", "application_name")
_REMEDY = (
    "in a user's name or password write % as %25, @ as %40, / as %2F, : as %3A, ? as %3F, # as "
    "%23, & as %26, [ as %5B and a space as %20"
)


def check_address(url: str) -> None:
    """Refuse the URL of a server if it is ambiguous.

    Raises:
        InvalidArgumentError: It is, or is not a URL; only its scheme is quoted.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        name = url.partition(":")[0]
        raise InvalidArgumentError(
            f"the URL of a server must begin with {name}://, not with {name}: alone"
        )
    authority, path, query = _parts(rest)
    user, _, servers = authority.rpartition("@")
    ambiguous = (
        "@" in user + path
        or re.search(r"\s", authority)
        or ("#" in rest and not scheme.startswith("postgres"))
        or "%" in _ESCAPED.sub("", user)
        or not _are_servers(servers, scheme)
        or any(map(_is_misplaced, query.split("&")))
        or not _can_be_split(url)
    )
    if ambiguous:
        raise InvalidArgumentError(
            f"the {scheme} URL cannot be read as SCHEME://USER:PASSWORD@HOST:PORT/...?NAME=VALUE: "
            f"{_REMEDY}"
        )


def masked(url: str) -> str:
    """Return ``url`` with every part masked that may be (part of) a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        name, colon, rest = url.partition(":")
        return f"{name}:{_MASK}" if colon and "@" in rest else url
    if option := _PASSWORD_OPTION.search(rest):
        rest = rest[: option.end()] + _MASK
    user, at, place = rest.rpartition("@")
    if at:
        name = _USER_END.split(user, maxsplit=1)[0]
        # A name alone may be a password without the : before it.
        known = name != user or scheme.startswith("postgres")
        user = f"{name if known else _MASK}{'' if name == user else ':' + _MASK}@"
        return f"{scheme}://{user}{place}"
    authority, _, _ = _parts(rest)
    if not _are_servers(authority, scheme):
        return f"{scheme}://{authority.partition(':')[0]}:{_MASK}"
    return f"{scheme}://{rest}"


def with_password(url: str, password: str) -> str:
    """Return ``url``, which has no password, with this escaped one added."""
    scheme, _, rest = url.partition("://")
    authority, _, _ = _parts(rest)
    user, _, _ = authority.rpartition("@")
    return f"{scheme}://{user}:{password}@{rest.removeprefix(f'{user}@')}"


def may_be_quoted(url: str) -> bool:
    """Whether a parser's error about the URL's options may be shown: it has no password option."""
    return _PASSWORD_OPTION.search(url) is None


def has_password(url: str) -> bool:
    """Whether the URL has a password."""
    rest = url.partition("://")[2]
    return ":" in _parts(rest)[0].rpartition("@")[0] or _PASSWORD_OPTION.search(rest) is not None


def _parts(rest: str) -> tuple[str, str, str]:
    """Return authority, path and query, without the characters that separate them."""
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    return authority, path, query


def _is_misplaced(option: str) -> bool:
    """Whether an option may really be the second half of a password, followed by the server."""
    name, separator, value = option.partition("=")
    may_have_it = name in _NAME_OPTIONS or _PASSWORD_OPTION.match(f"?{name}=")
    return bool(option) and (not separator or "@" in name or ("@" in value and not may_have_it))


def _can_be_split(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:  # of brackets
        return False
    return True


def _are_servers(servers: str, scheme: str) -> bool:
    """Whether ``servers`` is a list of servers; for a socket: whether it is empty."""
    if scheme == "unix":
        return not servers
    return "".join(match.group() for match in _SERVERS.finditer(servers)) == servers
