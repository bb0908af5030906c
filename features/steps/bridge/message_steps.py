from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RunTimeoutError, StreamMessage, errors
from support.bridge.bridges import answer
from support.concurrency.waiting import LIMIT, in_threads

FIELDS = ("content", "thread_id", "metadata", "id", "source", "status", "error", "duration")


def fields(message: StreamMessage) -> dict[str, Any]:
    return {name: getattr(message, name) for name in FIELDS}


def failed_result() -> StreamMessage:
    source = StreamMessage([1], "t", {"line": 3})
    error = RunTimeoutError("too late")
    return StreamMessage(
        None,
        "t",
        source.metadata,
        source=source,
        status="timed_out",
        error=error,
        duration=0.5,
    )


@then("writing, deleting or adding a field of a message raises AttributeError")
def step_writing_deleting_or_adding_a_field_of_a_message_raises(context: Context) -> None:
    message = failed_result()
    before = fields(message)
    attempts = [lambda name=name: setattr(message, name, 1) for name in (*FIELDS, "new")]
    attempts += [lambda name=name: delattr(message, name) for name in FIELDS]
    for attempt in attempts:
        try:
            attempt()
        except AttributeError:
            continue
        raise AssertionError("it was changed")
    assert fields(message) == before


@then("a message made with {view} keeps its metadata when its owner changes his")
def step_a_message_made_with_view_keeps_its_metadata_when_its_owner(
    context: Context, view: str
) -> None:
    owned: dict[str, int] = {"line": 3}
    given = {"a dictionary": owned, "a read-only view": MappingProxyType(owned)}[view]
    message = StreamMessage(1, metadata=given)
    owned["line"] = 4
    assert dict(message.metadata) == {"line": 3}, f"changed through {view}"


@then("a message's metadata cannot be changed")
def step_a_messages_metadata_cannot_be_changed(context: Context) -> None:
    message = StreamMessage(1, metadata={"line": 3})
    try:
        message.metadata["line"] = 5  # type: ignore[index]
    except TypeError:
        return
    raise AssertionError("it was changed")


@when("{count:d} threads make {each:d} messages each")
def step_count_threads_make_each_messages_each(context: Context, count: int, each: int) -> None:
    context.ids = in_threads(count, lambda _: [StreamMessage(i).id for i in range(each)])


@then("all ids differ, and each thread's are in order")
def step_all_ids_differ_and_each_threads_are_in_order(context: Context) -> None:
    everything = [each for ids in context.ids for each in ids]
    assert len(set(everything)) == len(everything)
    assert all(ids == sorted(ids) for ids in context.ids)


@then("messages with equal fields are equal and hash alike, others are not equal")
def step_messages_with_equal_fields_are_equal_and_hash_alike_others(context: Context) -> None:
    one, same = (StreamMessage([1], "t", {"a": 1}, id="m") for _ in range(2))
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    for other in (
        StreamMessage([2], "t", {"a": 1}, id="m"),
        StreamMessage([1], "u", {"a": 1}, id="m"),
        StreamMessage([1], "t", {"a": 2}, id="m"),
        StreamMessage([1], "t", {"a": 1}),
        [1],
        None,
    ):
        assert one != other, other


class Compared:
    """What is compared with something: true or false, or as an array of several elements."""

    def __init__(self, truth: bool | None) -> None:
        self._truth = truth

    def __bool__(self) -> bool:
        if self._truth is None:
            raise ValueError("the truth value of an array is ambiguous")
        return self._truth


class Content:
    """Something whose comparison returns what it is told to."""

    def __init__(self, compare: Callable[[], object]) -> None:
        self._compare = compare

    def __eq__(self, other: object) -> Any:
        return self._compare()

    __hash__ = None  # type: ignore[assignment]


def refuse() -> object:
    raise TypeError("these have different shapes")


@given("two messages with one id whose contents are alike, and their comparison {does}")
def step_two_messages_with_one_id(context: Context, does: str) -> None:
    compare: dict[str, Callable[[], object]] = {
        "raises an error": refuse,
        "has no truth value": lambda: Compared(None),
        "has no truth value within a dictionary": lambda: Compared(None),
        "has a truth value that is no bool": lambda: Compared(True),
    }

    def made() -> StreamMessage:
        content = Content(compare[does])
        return StreamMessage({"x": content} if "within" in does else content, id="m")

    context.pair = made(), made()


@then("each equals itself and its copy, and the other only if {equal}")
def step_each_equals_itself_and_its_copy(context: Context, equal: str) -> None:
    one, other = context.pair
    for each in context.pair:
        copied = each.replace()
        assert each == each and each == copied and hash(each) == hash(copied)  # noqa: PLR0124
        assert each != each.replace(id="n") and each.replace(id="n") != each
    assert (one == other) is (other == one) is (equal == "always")


@then("each is found in a list, a set and a dictionary that has it")
def step_each_is_found_in_a_list_a_set_and_a_dictionary(context: Context) -> None:
    one, other = context.pair
    both = [one, other, StreamMessage(1)]
    assert both.index(one) == 0 and one in set(both) and other in dict.fromkeys(both)


@then("a result survives {way}")
def step_a_result_survives_way(context: Context, way: str) -> None:
    result = failed_result()
    through = {
        "pickle": lambda: pickle.loads(pickle.dumps(result)),
        "copy": lambda: copy.copy(result),
        "deepcopy": lambda: copy.deepcopy(result),
    }[way]()
    got, expected = fields(through), fields(result)
    # Exceptions are equal by identity alone.
    assert repr(got.pop("error")) == repr(expected.pop("error"))
    assert got == expected


@then("raise_for_status with the status {status} returns the message")
def step_raise_for_status_with_the_status_status_returns_the(context: Context, status: Any) -> None:
    message = StreamMessage(1, status=status)
    assert message.raise_for_status() is message


@then("raise_for_status with the status {status} raises {name}")
def step_raise_for_status_with_the_status_status_raises_name(
    context: Context, status: Any, name: str
) -> None:
    message = StreamMessage(1, id="m-1", status=status)
    try:
        message.raise_for_status()
    except errors.RunError as error:
        assert type(error).__name__ == name, repr(error)
        assert "m-1" in str(error), error
        return
    raise AssertionError("it raised nothing")


@then("raise_for_status of its result raises that error itself")
def step_raise_for_status_of_its_result_raises_that_error_itself(context: Context) -> None:
    result = answer(context)
    try:
        result.raise_for_status()
    except ValueError as error:
        assert error is result.error
        return
    raise AssertionError("it raised nothing")


@then("None, 0, a list and a message are each answered with the same content")
def step_none_0_a_list_and_a_message_are_each_answered_with_the(context: Context) -> None:
    message = StreamMessage("content")
    for item, content in ((None, None), (0, 0), ([1], [1]), (message, "content")):
        result = context.bridge.create_future_task(lambda value: value, item).result(LIMIT)
        assert result.content == content, result
    assert result.source is message


@then("a failed result put on another thread is the same but for the thread")
def step_a_failed_result_put_on_another_thread_is_the_same_but_for(context: Context) -> None:
    result = failed_result()
    moved = result.replace(thread_id="another")
    assert fields(moved) == {**fields(result), "thread_id": "another"}, moved


@then("the text of a failed result shows its status and its error")
def step_the_text_of_a_failed_result_shows_its_status_and_its_error(context: Context) -> None:
    sent = StreamMessage("hello", "ada")
    failed = StreamMessage(None, "ada", source=sent, status="error", error=ValueError("no"))
    assert "status='error', error=ValueError('no')" in repr(failed), failed
