"""Options as people read them: numbers with errors in words, and help with headings.

What breaks without them: click calls a number "integer range", shows every technical bound in the
help (``0<x<=1000000000.0``), and lists forty options without a break.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["SectionedCommand", "parsed", "seconds", "whole_number"]

# Seconds: much more would overflow the system's clocks.
_LONGEST = 1e9


def whole_number(least: int, most: int | None = None) -> Callable[[Any], int]:
    """Return an option's type: a whole number of at least ``least``, and at most ``most``."""

    def convert(value: Any) -> int:
        try:
            number = int(value)
        except (ValueError, OverflowError):
            number = None
        if number is None or (isinstance(value, float) and number != value):
            raise click.BadParameter(f"{value!r} is not a whole number")
        if number < least:
            raise click.BadParameter(f"{number} is too small; give a whole number from {least}")
        if most is not None and number > most:
            raise click.BadParameter(f"{number} is too large; give {most:,} at most")
        return number

    return convert


def seconds(least: float = 0.0, most: float = _LONGEST) -> Callable[[Any], float]:
    """Return an option's type: seconds, from ``least`` (more than 0, if that is 0) to ``most``."""

    def convert(value: Any) -> float:
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isnan(number):  # which is neither below nor above a limit
            raise click.BadParameter(f"{value!r} is not a number of seconds; write 30 or 0.5")
        if number < least or number <= 0:
            shortest = f"at least {least}" if least else "more than 0"
            raise click.BadParameter(f"{value} is too short; give {shortest} seconds")
        if number > most:
            raise click.BadParameter(f"{value} is too long; give {most:,.0f} seconds at most")
        return number

    return convert


def parsed(
    parse: Callable[[str], object],
) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """Return an option's callback that parses its value; InvalidArgumentError is wrong usage."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> object:
        try:
            return None if value is None else parse(value)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error)) from error

    return callback


class SectionedCommand(click.Command):
    """A command whose help has its options under several headings.

    Args:
        sections: The heading above an option, by the name of the option that follows it.
        **others: As for `click.Command`.
    """

    def __init__(self, *, sections: Mapping[str, str], **others: Any) -> None:
        super().__init__(**others)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their order, a heading above the first of each section."""
        heading = "Options"
        rows: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            heading = self._sections.get(str(each.name), heading)
            row = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if row is not None:
                rows.setdefault(heading, []).append(row)
        for heading, options in rows.items():
            with formatter.section(heading):
                formatter.write_dl(options)
