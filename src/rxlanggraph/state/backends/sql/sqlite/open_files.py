"""OpenFiles: whether a database and the files beside it are still where they were opened.

What breaks without it: after a database was replaced, its old file is written to, which no other
process reads. Without its log (-wal), others do not see what was written last; without the index of
that (-shm), they write at the same time.

To look at each file before each call takes a seventh of the time of a short one. Creating,
renaming or deleting a file changes the times of its folder, so usually the folder is looked at
alone. Mounting another file over it does not, so each is looked at once a second in any case.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, TypeAlias

__all__ = ["FileReplacedError", "OpenFiles"]

# Which folder it is, and when it was changed: not the time of modification alone, which programs
# that copy folders set back.
_FolderState: TypeAlias = tuple[int, int, int, int]

# Nanoseconds for which the times of a folder may stay the same in spite of a second change. A tick
# of the kernel is 10 ms at most; some file systems count in steps of 1 or 2 seconds.
_TICK: Final = 100_000_000
_LONG_TICK: Final = 2_000_000_000
_SECOND: Final = 1_000_000_000


class FileReplacedError(Exception):
    """A file is no longer at its path; other processes may use another file there."""


class OpenFiles:
    """The files of one connection. Confined to the thread of that.

    Args:
        path: The database.

    Raises:
        FileReplacedError: It is no longer there.
    """

    def __init__(self, path: str) -> None:
        self._files = {path: _stat(path)}
        # A link may lead to another folder: then each file is looked at.
        self._folder = None if Path(path).is_symlink() else str(Path(path).parent)
        # The folder as it was while all files were in their places; None if another change might
        # not have shown by then.
        self._unchanged: _FolderState | None = None
        self._looked = 0  # when the files were last looked at

    def add_log(self) -> None:
        """Check the files beside the database, too. The connection has opened them.

        Raises:
            FileReplacedError: One is no longer there.
        """
        # Named after the file itself, not after a link to it.
        (path,) = (os.path.realpath(path) for path in self._files)
        for beside in (f"{path}-wal", f"{path}-shm"):
            self._files[beside] = _stat(beside)

    def is_database(self, path: str | Path) -> bool:
        """Whether the database is at ``path``, or what this leads to."""
        return _is_at(str(path), next(iter(self._files.values())))

    def check(self) -> None:
        """Refuse files that are no longer in their places.

        Raises:
            FileReplacedError: One of them is not.
        """
        now = time.time_ns()
        folder = self._folder_state()
        is_unchanged = folder is not None and folder == self._unchanged
        if is_unchanged and 0 <= now - self._looked < _SECOND:
            return
        for path, file in self._files.items():
            if not _is_at(path, file):
                raise _replaced(path)
        self._looked = now
        self._unchanged = folder if folder is not None and _is_settled(folder, now) else None

    def _folder_state(self) -> _FolderState | None:
        if self._folder is None:
            return None
        try:
            state = os.stat(self._folder)  # noqa: PTH116 - a Path's takes longer, at each check
        except OSError:
            return None  # which is the database's problem, too
        return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _is_settled(folder: _FolderState, now: int) -> bool:
    """Whether a change of the folder from ``now`` on shows in its times."""
    changed = folder[-1]
    return now - changed > (_TICK if changed % _SECOND else _LONG_TICK)


def _is_at(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)  # noqa: PTH116 - as above
    except OSError:  # missing, or not accessible
        return False


def _stat(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise _replaced(path) from error


def _replaced(path: str) -> FileReplacedError:
    return FileReplacedError(
        f"{path!r} was moved, deleted or replaced while it was open; close the state, and open it "
        "again"
    )
