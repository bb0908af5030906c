"""Usage: the tokens that runs have used, and what they cost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.messages import StreamMessage
from rxlanggraph.validation import check_whole, shortened

__all__ = ["Price", "Spent", "Usage", "checked_prices", "priced", "sum_of"]

_MILLION = 1_000_000
_K = TypeVar("_K")


class Price(NamedTuple):
    """What a model costs, in any currency, for a million tokens.

    Attributes:
        input: Of questions.
        output: Of answers, reasoning included.
        cache_read: Of the parts of questions that the provider has cached; None: as ``input``.
        cache_write: Of those that it puts into its cache; None: as ``input``.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Spent(NamedTuple):
    """Tokens, and what they cost.

    Attributes:
        calls: How many answers were counted.
        input_tokens: Of the questions, those in the cache included.
        output_tokens: Of the answers.
        cache_read_tokens: Of the input tokens, those that the provider had in its cache.
        cache_write_tokens: Of the input tokens, those that it has put there.
        cost: In the currency of the prices; 0 without prices.
        unpriced: How many of the calls had no price, or no count of tokens: the cost lacks these.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        """Of questions and answers."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )


class Usage:
    """Counts the tokens of a bridge's runs, for `RxPyLangGraphBridge`'s ``usage``.

    Each answer of a LangChain model within a run is counted by its ``usage_metadata``: in total,
    for its model, its thread and its message, all attempts together. Calls that fail report no
    tokens, and are not counted; nor are answers from LangChain's cache. Several bridges may share
    one object. Any thread may use it; nothing blocks.

    Args:
        prices: By the name of the model, as LangChain knows it or as the provider answers with:
            a `Price`, or a mapping with its fields. None: nothing has a cost.
        keep: How many threads, and how many messages, are remembered: those that were counted last.

    Raises:
        InvalidTypeError: ``prices`` is not a mapping, or has something else than prices.
        InvalidArgumentError: A price is negative, has other fields, or ``keep`` is less than 1.
    """

    def __init__(
        self,
        prices: Mapping[str, Price | Mapping[str, float]] | None = None,
        *,
        keep: int = 10_000,
    ) -> None:
        check_whole("keep", keep, least=1)
        self._prices = checked_prices(prices)
        self._keep = keep
        # A leaf; an RLock, as a finalizer or a signal handler may end a call. Guards all below.
        self._lock = fork_safe_rlock()
        self._total = Spent()
        self._models: dict[str, Spent] = {}
        self._threads: OrderedDict[str | None, Spent] = OrderedDict()
        self._messages: OrderedDict[str, dict[str, Spent]] = OrderedDict()

    def __repr__(self) -> str:
        """The total."""
        return f"<Usage {self.total()}>"

    def total(self) -> Spent:
        """Return everything that was counted."""
        with self._lock:
            return self._total

    def by_model(self) -> dict[str, Spent]:
        """Return what was counted for each model."""
        with self._lock:
            return dict(self._models)

    def by_thread(self) -> dict[str | None, Spent]:
        """Return what was counted for each thread; under None, for messages without one."""
        with self._lock:
            return dict(self._threads)

    def of(self, message: StreamMessage) -> Spent:
        """Return what the run of a message, or of the one that a result answers, has used."""
        return sum_of(self.models_of(message))

    def models_of(self, message: StreamMessage) -> dict[str, Spent]:
        """As `of`, for each model."""
        with self._lock:
            return dict(self._messages.get((message.source or message).id, {}))

    def add(
        self, message: StreamMessage, models: tuple[str, ...], tokens: Mapping[str, Any] | None
    ) -> None:
        """Count an answer. Any thread; never blocks.

        Args:
            message: The message of the run.
            models: The names of the model; it is counted under the first.
            tokens: Its ``usage_metadata``; None if it has none.
        """
        spent = self._spent(models, tokens)
        model = models[0] if models else ""
        with self._lock:
            self._total = self._total.plus(spent)
            self._models[model] = self._models.get(model, Spent()).plus(spent)
            thread = self._recent(self._threads, message.thread_id, Spent())
            self._threads[message.thread_id] = thread.plus(spent)
            by_model = self._recent(self._messages, message.id, {})
            by_model[model] = by_model.get(model, Spent()).plus(spent)

    def price_of(self, models: tuple[str, ...]) -> Price | None:
        """Return the price of the first of these names that has one."""
        return next((self._prices[name] for name in models if name in self._prices), None)

    def _spent(self, models: tuple[str, ...], tokens: Mapping[str, Any] | None) -> Spent:
        if tokens is None:
            return Spent(calls=1, unpriced=1)
        details = tokens.get("input_token_details") or {}
        spent = Spent(
            1,
            _count(tokens, "input_tokens"),
            _count(tokens, "output_tokens"),
            _count(details, "cache_read"),
            _count(details, "cache_creation"),
        )
        return priced(spent, self.price_of(models))

    def _recent(self, table: OrderedDict[_K, Any], key: _K, new: Any) -> Any:
        """Return the value of ``key``, now the most recent one; drop the oldest."""
        value = table.setdefault(key, new)
        table.move_to_end(key)
        if len(table) > self._keep:
            table.popitem(last=False)
        return value


def priced(spent: Spent, price: Price | None) -> Spent:
    """Return the same tokens with their cost at ``price``; without one, if that is None."""
    if price is None:
        return spent._replace(cost=0.0, unpriced=spent.calls)
    read, written = spent.cache_read_tokens, spent.cache_write_tokens
    cost = (
        (spent.input_tokens - read - written) * price.input
        + read * (price.input if price.cache_read is None else price.cache_read)
        + written * (price.input if price.cache_write is None else price.cache_write)
        + spent.output_tokens * price.output
    )
    return spent._replace(cost=cost / _MILLION, unpriced=0)


def _count(tokens: Mapping[str, Any], name: str) -> int:
    value = tokens.get(name)  # whatever a model says
    return value if isinstance(value, int) else 0


def sum_of(spent: Mapping[Any, Spent]) -> Spent:
    """Return the sum of the values."""
    total = Spent()
    for each in spent.values():
        total = total.plus(each)
    return total


def checked_prices(prices: object) -> dict[str, Price]:
    """Return the ``prices`` of a `Usage`; none for None. Any thread; never blocks.

    Raises:
        InvalidArgumentError: A price is negative, or has other fields.
        InvalidTypeError: It is not a mapping, or has something else than prices.
    """
    if prices is None:
        return {}
    if not isinstance(prices, Mapping):
        raise InvalidTypeError(
            f"prices must be a mapping from models to prices, not {shortened(prices)}; write "
            '{"gpt-5": {"input": 1.25, "output": 10}}, for a million tokens'
        )
    return {_name(name): _price(name, price) for name, price in prices.items()}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"the keys of prices are names of models, not {shortened(name)}")
    return name


def _price(name: object, price: object) -> Price:
    fields = price._asdict() if isinstance(price, Price) else price
    if not isinstance(fields, Mapping):
        raise InvalidTypeError(f"the price of {name!r} must be a Price, not {shortened(price)}")
    unknown = set(fields) - set(Price._fields)
    missing = {"input", "output"} - set(fields)
    if unknown or missing:
        raise InvalidArgumentError(
            f"the price of {name!r} must have input and output, and may have cache_read and "
            f"cache_write, not {', '.join(map(repr, fields)) or 'nothing'}"
        )
    for field, value in fields.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None and field not in {"input", "output"}:
            continue
        if not is_number:
            raise InvalidTypeError(
                f"{field} of the price of {name!r} must be a number, not {shortened(value)}"
            )
        if not 0 <= value < float("inf"):
            raise InvalidArgumentError(
                f"{field} of the price of {name!r} must be 0 or more, not {value!r}"
            )
    return Price(**fields)
