"""A runner of Behave that shares the features among processes, which take them from one queue.

    python -m behave --runner=tests.side_by_side:SideBySide features

Importing the steps takes longer than most features, under coverage above all. So they are imported
once, and then this process forks. A worker takes the next feature when it is done with one, in the
order of the command line: where the longest come first, the workers end together.

What a worker prints comes in one piece, at the end; the reports are one file for each feature.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from behave.model import Feature
from behave.runner import Runner

__all__ = ["SideBySide"]

# More than the two cores of a small machine: tests wait more than they work.
WORKERS = 3


class SideBySide(Runner):
    """Runs the features in `WORKERS` copies of this process."""

    def run_model(self, features: Any = None) -> Any:
        """Run all features; in a worker, those that it gets. True if anything has failed."""
        queue = _queue_of(len(self.features))
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(WORKERS)]
            workers = []
            for output in outputs:
                sys.stdout.flush()
                if (pid := os.fork()) == 0:
                    os.dup2(output.fileno(), sys.stdout.fileno())
                    stack.close()
                    # Its end is that of any process: so its coverage is written.
                    return super().run_model(self._taken_from(queue, list(self.features)))
                workers.append(pid)
            os.close(queue)
            failed = [pid for pid in workers if os.waitpid(pid, 0)[1] != 0]
            for output in outputs:
                output.seek(0)
                shutil.copyfileobj(output, sys.stdout.buffer)
        sys.stdout.flush()
        return bool(failed)

    def _taken_from(self, queue: int, features: list[Feature]) -> Iterator[Feature]:
        while number := os.read(queue, 1):
            feature = features[number[0]]
            if feature in self.features:  # before_all leaves out those of which nothing is chosen
                yield feature


def _queue_of(count: int) -> int:
    """Return a pipe with the numbers of the features, one byte each: reading one takes it."""
    reading, writing = os.pipe()
    os.write(writing, bytes(range(count)))
    os.close(writing)
    return reading
