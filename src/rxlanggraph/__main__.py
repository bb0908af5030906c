"""``python -m rxlanggraph``: the same as the ``rxlanggraph`` command."""

from __future__ import annotations

import sys

from rxlanggraph.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
