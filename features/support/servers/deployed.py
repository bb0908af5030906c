"""What a state does at servers as they are deployed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import open_state
from support.concurrency.raising import raised
from support.servers.relay import Relay
from support.servers.sentinel import Watched
from support.servers.sql_servers import Counting
from support.servers.tls import Authority, TlsEnd
from support.state.redis_ways import NAMESPACE
from support.state.sql_ways import opened, value_of

__all__ = [
    "PASSWORD",
    "ask_for_password",
    "count",
    "count_in_vain",
    "count_over_tls",
    "count_through_addresses",
    "count_through_promotion",
    "count_unconfirmed",
    "count_unconfirmed_again",
    "standing_still",
    "with_password_in",
]

PASSWORD = "sesame"
ASKED = "asked"


async def count(url: str, times: int = 3) -> int:
    async with open_state(url, namespace=NAMESPACE) as state:
        for _ in range(times):
            counter = await state.increment_counter("n")
    return counter


# -- TLS -------------------------------------------------------------------------------------------


async def count_over_tls(url: str, folder: Path, trusted: bool, name: str) -> tuple[int, int]:
    """Return the counter, and how many connections were encrypted."""
    authority = Authority(folder)
    (folder / "other").mkdir(exist_ok=True)
    believed = authority if trusted else Authority(folder / "other")
    async with TlsEnd(url, authority.context("127.0.0.1")) as end:
        if end.parts.scheme == "postgresql":
            user, database = end.parts.username, end.parts.path
            where = f"postgresql://{user}@{name}:{end.port}{database}"
            options = f"?sslmode=verify-full&sslrootcert={believed.file}"
        else:
            where, options = f"rediss://{name}:{end.port}", f"?ssl_ca_certs={believed.file}"
        return await count(where + options), end.encrypted


# -- passwords -------------------------------------------------------------------------------------


def ask_for_password(connection: Any) -> None:
    """Have the server ask one user for a password."""
    known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (ASKED,)).fetchone()
    if known is None:  # roles are of the whole server
        connection.execute(f"CREATE ROLE {ASKED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    (file,) = connection.execute("SHOW hba_file").fetchone()
    rules = Path(file).read_text(encoding="utf-8")
    rule = f"local all {ASKED} scram-sha-256\n"
    if not rules.startswith(rule):
        Path(file).write_text(rule + rules, encoding="utf-8")
    connection.execute("SELECT pg_reload_conf()")


def with_password_in(place: str, url: str, folder: Path) -> tuple[str, dict[str, str]]:
    """The URL without the password, and the environment that leads to it."""
    asked = url.replace("postgresql://postgres@", f"postgresql://{ASKED}@")
    where, _, host = url.partition("?host=")
    database = where.rpartition("/")[2]
    if place == "the password file":
        file = folder / "passwords"
        file.write_text(f"*:*:*:{ASKED}:{PASSWORD}\n", encoding="utf-8")
        file.chmod(0o600)
        return asked, {"PGPASSFILE": str(file)}
    if place == "nothing":
        return asked, {"PGPASSFILE": str(folder / "none")}
    file = folder / "services"
    lines = {"host": host, "dbname": database, "user": ASKED, "password": PASSWORD}
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    file.write_text(f"[shared]\n{text}", encoding="utf-8")
    found = {"PGSERVICEFILE": str(file)}
    if place == "a service of the URL":
        return "postgresql:///?service=shared", found
    return "postgresql://", found | {"PGSERVICE": "shared"}


# -- several addresses -----------------------------------------------------------------------------


async def count_through_addresses(url: str) -> tuple[Counting, int]:
    """Count at an address of several that goes; return what was answered, and the counter."""
    async with Relay(url) as first, Relay(url) as second:
        database = url.partition("?")[0].rpartition("/")[2]
        servers = f"127.0.0.1:1,{first.address},{second.address}"
        options = "sslmode=disable&gssencmode=disable&target_session_attrs=read-write"
        async with opened(f"postgresql://postgres@{servers}/{database}?{options}") as backend:
            counting = Counting(backend)
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(counting.work())
                await counting.wait_answered(20)
                first._server.close()
                await first.end("idle", "RST")
                await counting.wait_answered(20)
                counting.stop()
            return counting, int(await value_of(backend, "n") or 0)


# -- Sentinels -------------------------------------------------------------------------------------


async def count_through_promotion(watched: Watched, options: str) -> tuple[int, int]:
    """Count while the primary is killed; return what was answered, and the counter afterwards."""
    async with (
        open_state(f"{watched.url}?{options}", namespace=NAMESPACE) as state,
        open_state(watched.url, namespace=NAMESPACE) as other,
    ):
        for _ in range(20):
            await state.increment_counter("n")
        watched.primary.kill()
        # The promoted one has no replica that could confirm anything.
        assert isinstance(await raised(state.increment_counter("n")), StateUnavailableError)
        watched.promoted()
        counter = await other.increment_counter("n", 0)
        return 20 + await other.increment_counter("n") - counter, counter + 1


async def count_in_vain(watched: Watched) -> tuple[int, int]:
    """The same, where the replica gets nothing more for some time before that."""
    async with open_state(watched.url, namespace=NAMESPACE) as state:
        await state.increment_counter("n")
        assert watched.confirmed() == 1
        watched.cut_off()
        for _ in range(20):
            await state.increment_counter("n")
        watched.primary.kill()
        watched.promoted()
        return 21, await state.increment_counter("n", 0)


@contextmanager
def standing_still(watched: Watched) -> Iterator[None]:
    watched.replica.pause()
    try:
        yield
    finally:
        watched.replica.resume()


async def count_unconfirmed(watched: Watched) -> tuple[BaseException | None, int]:
    """What a call raises that no replica confirms, and what the next one answers after that."""
    url = f"{watched.url}?wait_replicas=1&socket_timeout=4"
    error: BaseException | None = None
    async with open_state(url, namespace=NAMESPACE) as state:
        with standing_still(watched):
            try:
                await state.increment_counter("n")
            except StateUnavailableError as unconfirmed:
                error = unconfirmed
        return error, await state.increment_counter("n")


async def count_unconfirmed_again(watched: Watched) -> BaseException | None:
    """What a call raises whose first answer was lost, and which no replica confirms."""
    async with Relay(watched.primary.url) as relay:
        url = f"{relay.url}?wait_replicas=1&socket_timeout=4"
        async with open_state(url, namespace=NAMESPACE) as state:
            await state.increment_counter("n")
            with standing_still(watched):
                await relay.end("before the reply", "RST")
                try:
                    await state.increment_counter("n")
                except StateUnavailableError as unconfirmed:
                    return unconfirmed
    return None
