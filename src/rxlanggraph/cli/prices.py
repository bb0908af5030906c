"""``--prices``: what models cost, from a file."""

from __future__ import annotations

import click

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.object_files import read_object
from rxlanggraph.errors import UsageError
from rxlanggraph.limits import Price
from rxlanggraph.limits.usage import checked_prices

__all__ = ["prices_in"]

_EXAMPLE = 'write the prices for a million tokens: {"gpt-5": {"input": 1.25, "output": 10}}'


def prices_in(file: str) -> dict[str, Price]:
    """Return the prices in ``file``. Blocks as reading does.

    Raises:
        CommandError: It cannot be read, or does not hold an object.
        UsageError: That has something else than prices; click's.
    """
    try:
        return checked_prices(read_object(file, CommandError, _EXAMPLE))
    except UsageError as error:
        raise click.UsageError(f"--prices: {error}") from error
