"""``--prices``: what models cost, from a file."""

from __future__ import annotations

import click

from rxlanggraph.errors import UsageError
from rxlanggraph.limits import Price
from rxlanggraph.limits.usage import read_prices

__all__ = ["prices_in"]


def prices_in(file: str) -> dict[str, Price]:
    """Return the prices in ``file``. Blocks as reading does.

    Raises:
        UsageError: It cannot be read, or is not a table of prices; click's.
    """
    try:
        return read_prices(file)
    except OSError as error:
        raise click.UsageError(
            f"--prices: cannot read {file}: {error.strerror or error}; give a readable file"
        ) from error
    except UsageError as error:
        raise click.UsageError(f"--prices: {error}") from error
