"""The Lua scripts: each is a method of the backend, or part of one, and one step on the server.

The sources are in the folder ``lua``; several scripts share parts. Each script gets every key that
it uses as an argument, and all keys of a namespace have the same hash tag, as a cluster requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

from rxlanggraph.state.backend import MAX_PER_STEP

__all__ = [
    "ADD_TIMES",
    "COMMIT",
    "DESCRIBE",
    "INCREMENT",
    "LOCK_ACQUIRE",
    "LOCK_RELEASE",
    "LOCK_RENEW",
    "NAMES",
    "READ",
    "SCHEMA",
    "TASKS_ADD",
    "TASKS_CANCEL",
    "TASKS_DEAD",
    "TASKS_DELETE",
    "TASKS_PAGE",
    "TASKS_PURGE",
    "TASKS_REQUEUE",
    "TASKS_RESULTS",
    "TASKS_STATS",
    "TASK_CLAIM",
    "TASK_COMPLETE",
    "TASK_FAIL",
    "TASK_RELEASE",
    "TASK_RENEW",
    "Script",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A script.

    Attributes:
        source: Its text.
        sha: The digest that identifies it in EVALSHA.
        deduplicated: Whether it takes effect only once even if it is sent again
            (lua/deduplicate.lua). The others are idempotent, and repeated by the callers of the
            backend.
    """

    source: str
    sha: str
    deduplicated: bool


def _script(*parts: str) -> Script:
    folder = files(__package__) / "lua"
    texts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts]
    source = "\n".join([f"local MAX_PER_STEP = {MAX_PER_STEP}", *texts])
    digest = sha1(source.encode(), usedforsecurity=False)  # as EVALSHA requires
    return Script(source, digest.hexdigest(), "deduplicate" in parts)


SCHEMA = _script("schema")
ADD_TIMES = _script("clock", "add_times")

READ = _script("read")
COMMIT = _script("clock", "deduplicate", "fence", "commit")
INCREMENT = _script("clock", "deduplicate", "fence", "increment")

LOCK_ACQUIRE = _script("clock", "lock_acquire")
LOCK_RENEW = _script("lock_renew")
LOCK_RELEASE = _script("deduplicate", "lock_release")

TASKS_ADD = _script("clock", "queue", "tasks_add")
TASK_CLAIM = _script("clock", "deduplicate", "queue", "task_claim")
TASK_RENEW = _script("clock", "queue", "task_renew")
TASK_COMPLETE = _script("clock", "queue", "task_complete")
TASK_FAIL = _script("clock", "deduplicate", "queue", "task_fail")
TASK_RELEASE = _script("clock", "deduplicate", "queue", "task_release")
TASKS_DEAD = _script("clock", "queue", "dead", "tasks_dead")
TASKS_REQUEUE = _script("clock", "deduplicate", "queue", "dead", "tasks_requeue")
TASKS_RESULTS = _script("queue", "tasks_results")
TASKS_STATS = _script("clock", "queue", "tasks_stats")
TASKS_PURGE = _script("clock", "deduplicate", "queue", "state", "forget", "tasks_purge")
TASKS_DELETE = _script("clock", "deduplicate", "queue", "state", "forget", "tasks_delete")
TASKS_PAGE = _script("clock", "queue", "state", "tasks_page")
TASKS_CANCEL = _script("clock", "deduplicate", "queue", "tasks_cancel")

NAMES = _script("names")
DESCRIBE = _script("describe")
