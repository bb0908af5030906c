"""Keywords for runs with a journal: where it is, what it says, and what the output has to be."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

from processes import DEADLINE, _environment

# The servers are those of the Behave scenarios.
sys.path.append(str(Path(__file__).resolve().parents[2] / "features"))
from support.servers import postgres_server, valkey_server

SERVERS = {"PostgreSQL": postgres_server, "Valkey": valkey_server}

_numbers = itertools.count(1)


class journals:
    """The library; one for each suite."""

    ROBOT_LIBRARY_SCOPE = "SUITE"

    # -- servers ---------------------------------------------------------------------------------

    def new_journal(self, where: str) -> str:
        """Return a name for ``--journal``: of a file in the folder, or on a server, started now."""
        if where == "SQLite":
            return f"run-{next(_numbers)}.sqlite"
        SERVERS[where].start()
        return SERVERS[where].fresh_url()

    def restart_server(self, where: str) -> None:
        """Kill a server, and start it again with what it has acknowledged."""
        if where == "PostgreSQL":
            postgres_server.restart(crash=True)
        else:
            valkey_server.restart()

    def stop_servers(self) -> None:
        for server in SERVERS.values():
            server.stop()

    # -- status ----------------------------------------------------------------------------------

    def status_of(self, journal: str, folder: str) -> dict[str, Any]:
        """Return what ``rxlanggraph status --json`` prints; nothing if there is no journal yet."""
        done = subprocess.run(
            [sys.executable, "-m", "rxlanggraph", "status", journal, "--json"],
            cwd=folder,
            env=_environment(measured=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        status: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return status

    def wait_until_status(self, journal: str, folder: str, condition: str) -> dict[str, Any]:
        """Look at the status until a condition holds, such as ``answered >= 10``."""
        deadline = monotonic() + DEADLINE
        status: dict[str, Any] = {}
        while monotonic() < deadline:
            status = self.status_of(journal, folder)
            if status and eval(condition, {"__builtins__": {}}, status):
                return status
        raise AssertionError(f"{condition!r} never came true: {status}")

    # -- outputs ---------------------------------------------------------------------------------

    def each_line_is_answered_once(
        self, path: str, lines: int, ordered: bool = False
    ) -> list[dict[str, Any]]:
        """Check that a file has a whole record for each line, and each that is ok its number."""
        text = Path(path).read_text(encoding="utf-8")
        assert text.endswith("\n"), f"the last line is cut off: {text[-200:]!r}"
        records = [json.loads(line) for line in text.splitlines()]
        numbers = [record["line"] for record in records]
        twice = [number for number, count in Counter(numbers).items() if count > 1]
        lost = sorted(set(range(1, lines + 1)) - set(numbers))
        assert not twice and not lost, f"twice: {twice}, lost: {lost}"
        assert len(numbers) == lines, f"{len(numbers)} records for {lines} lines"
        assert not ordered or numbers == sorted(numbers), f"they are not in order: {numbers}"
        for record in records:
            assert record["status"] != "ok" or record["content"] == record["line"], record
        return records

    def threads_ran_in_order(self, path: str, threads: int) -> None:
        """Check what the graph noted: of each thread, no message began before the one before it."""
        begun: dict[int, int] = {}
        for text in Path(path).read_text().split():
            number = int(text)
            # One that was begun by a process that was killed, or stood still, begins again.
            last = begun.get(number % threads, 0)
            assert number <= last or number == last + threads or last == 0, (number, last)
            begun[number % threads] = max(number, last)
