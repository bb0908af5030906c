"""``--limit``, ``--usage`` and ``--prices``: the limits and the usage of models, in one job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.limits import Limits, ModelLimit, Price, Spent, Usage
from rxlanggraph.limits.usage import priced, sum_of

if TYPE_CHECKING:
    from rxlanggraph.state import State

__all__ = [
    "ModelOptions",
    "ModelUse",
    "add_record",
    "as_text",
    "parse_limits",
    "usage_as_json",
]

_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = re.compile(r"(?P<name>requests|tokens)=(?P<number>\d+)/(?P<period>[smh])")
_CONCURRENCY = re.compile(r"concurrency=(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The options about models, as on the command line.

    Attributes:
        limits: By model; ``*`` for all others.
        counts: Whether tokens are counted.
        prices: By model, for a million tokens.
    """

    limits: Mapping[str, ModelLimit] = field(default_factory=dict)
    counts: bool = False
    prices: Mapping[str, Price] = field(default_factory=dict)


class ModelUse:
    """The limits and the usage of one job.

    Args:
        options: What was asked for.
        state: In which processes share the limits; None: they are not shared.

    Attributes:
        limits: For the bridge's ``limits=``.
        usage: For the bridge's ``usage=``.
    """

    def __init__(self, options: ModelOptions, state: State | None = None) -> None:
        self.limits = Limits(options.limits, state=state) if options.limits else None
        self.usage = Usage(options.prices) if options.counts else None

    def spent(self) -> Spent | None:
        """Return what all runs have used; None if it is not counted. Any thread."""
        return None if self.usage is None else self.usage.total()


def add_record(
    models: dict[str, Spent], record: Mapping[str, Any], prices: Mapping[str, Price]
) -> None:
    """Add the usage of a record's run to ``models``; its cost is that at these prices."""
    for model, fields in (record.get("usage") or {}).items():
        spent = Spent(**fields)
        if model in prices:
            spent = priced(spent, prices[model])
        models[model] = models.get(model, Spent()).plus(spent)


def usage_as_json(models: Mapping[str, Spent]) -> dict[str, Any]:
    """Return what was used in total, and of each model."""
    by_model = {model: spent._asdict() for model, spent in sorted(models.items())}
    return {"total": sum_of(models)._asdict(), "models": by_model}


def parse_limits(texts: Iterable[str]) -> dict[str, ModelLimit]:
    """Return the limits for texts such as ``gpt-5:requests=500/m,tokens=200000/m``.

    Raises:
        InvalidArgumentError: One of them is not a limit, or two are for one model.
    """
    limits: dict[str, ModelLimit] = {}
    for text in texts:
        model, _, rest = text.rpartition(":")
        key = model or "*"
        if key in limits:
            raise InvalidArgumentError(
                f"there are two limits for {key!r}; write them as one, with a comma"
            )
        limits[key] = _limit(text, rest.split(","))
    return limits


def _limit(text: str, parts: Iterable[str]) -> ModelLimit:
    amounts: dict[str, int] = {}
    periods: set[str] = set()
    for part in parts:
        match = _AMOUNT.fullmatch(part.strip())
        if match:
            periods.add(match["period"])
        name = match["name"] if match else "concurrency"
        match = match or _CONCURRENCY.fullmatch(part.strip())
        if match is None or name in amounts or len(periods) > 1:
            raise InvalidArgumentError(
                f"{text!r} is not a limit: write MODEL:requests=500/m,tokens=200000/m,"
                "concurrency=8, or some of these, with the same period; without MODEL: it is for "
                "each model that has no limit of its own"
            )
        amounts[name] = int(match["number"])
    period = _PERIODS[periods.pop()] if periods else 60.0
    try:
        return ModelLimit(**amounts, per=period)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{text!r} is not a limit: {error}") from error


def as_text(spent: Spent) -> str:
    """Return tokens and cost for people."""
    calls = f"{spent.calls:,} call{'' if spent.calls == 1 else 's'} of models"
    tokens = f"{spent.input_tokens:,} tokens in, {spent.output_tokens:,} out"
    if spent.unpriced == spent.calls:
        return f"{calls}, {tokens}"
    lacking = f", without {spent.unpriced:,} calls" if spent.unpriced else ""
    return f"{calls}, {tokens}, cost {spent.cost:,.4f}{lacking}"
