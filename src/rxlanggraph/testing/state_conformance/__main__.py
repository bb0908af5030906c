"""Check the store at a URL: ``python -m rxlanggraph.testing.state_conformance URL [WORD]``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import partial

from rxlanggraph.errors import InvalidArgumentError, RxLangGraphError
from rxlanggraph.state import open_state
from rxlanggraph.testing.state_conformance import conformance_checks

__all__ = ["check", "main"]


async def check(url: str, word: str = "") -> int:
    """Run the checks whose names contain ``word``, one after another; return how many failed.

    Raises:
        RxLangGraphError: The store cannot be opened, or no name contains the word.
    """
    checks = [each for each in conformance_checks() if word in str(each)]
    if not checks:
        raise InvalidArgumentError(f"no check has {word!r} in its name; omit it to run all checks")
    if url == "memory:":
        url = "memory:conformance"  # a check opens several states on the same data
    async with open_state(url):
        pass
    failed = 0
    for each in checks:
        try:
            await each(partial(open_state, url))
        except Exception as error:
            failed += 1
            sys.stdout.write(f"FAILED {each}\n  {type(error).__name__}: {error}\n")
        else:
            sys.stdout.write(f"ok     {each}\n")
    sys.stdout.write(f"{failed} failed\n")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0, 1 if a check failed, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m rxlanggraph.testing.state_conformance",
        description="Check whether the store at a URL keeps the contract of shared state.",
    )
    parser.add_argument("url", help="as for rxlanggraph.state.open_state; the checks write to it")
    parser.add_argument(
        "word", nargs="?", default="", help="run only the checks whose names contain it"
    )
    given = parser.parse_args(arguments)
    try:
        return 1 if asyncio.run(check(given.url, given.word)) else 0
    except RxLangGraphError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
