from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage

from rxlanggraph.agent import Memory, Message
from support.agent.agent_memories import RandomTalk, Words
from support.agent.agent_talk import calling, check_tools, quoted, texts, turn_of, user
from support.concurrency.raising import error_of
from support.concurrency.tasks import in_thread
from support.concurrency.waiting import in_threads

# -- given -----------------------------------------------------------------------------------------


@given("a memory of at most {count:d} words")
def step_a_memory_of_at_most_count_words(context: Context, count: int) -> None:
    context.words = Words()
    context.memory = Memory(max_tokens=count, token_counter=context.words)


class CountingModel(FakeListChatModel):
    """A chat model that knows how many tokens there are."""

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Any = None) -> int:
        return Words()(messages)


COUNTERS: dict[str, Any] = {
    "a function": Words(),
    "a chat model": CountingModel(responses=[]),
    "LangChain's estimation": None,
}


@given("a memory of at most {count:d} tokens, counted by {counter}")
def step_a_memory_of_at_most_count_tokens_counted_by_counter(
    context: Context, count: int, counter: str
) -> None:
    context.memory = Memory(max_tokens=count, token_counter=COUNTERS[counter])


@given("its counter raises")
def step_its_counter_raises(context: Context) -> None:
    context.words.error = LookupError("the counter's own error")


# -- bounds ----------------------------------------------------------------------------------------


@when("{count:d} messages of the user are added one by one")
def step_count_messages_of_the_user_are_added_one_by_one(context: Context, count: int) -> None:
    watch(context, [user(n) for n in range(count)])


@when("{count:d} calls are added without results")
def step_count_calls_are_added_without_results(context: Context, count: int) -> None:
    watch(context, [calling(f"c{n}", content=str(n)) for n in range(count)])


def watch(context: Context, messages: Sequence[Message]) -> None:
    """Add them one by one; what is shown, and how much is kept, after each."""
    context.shown, context.kept = [], []
    for number, message in enumerate(messages):
        context.memory.add(message)
        context.kept.append(len(context.memory._contents.entries))
        if number % 7 == 0 or number > len(messages) - 30:
            context.shown.append((number, context.memory.get_messages()))


@then("it never showed more than {count:d}, the newest ones")
def step_it_never_showed_more_than_count_the_newest_ones(context: Context, count: int) -> None:
    for number, shown in context.shown:
        expected = range(max(0, number + 1 - count), number + 1)
        assert texts(shown) == [str(n) for n in expected], (number, texts(shown))


@then("it never kept more than a quarter more, and a few")
def step_it_never_kept_more_than_a_quarter_more_and_a_few(context: Context) -> None:
    assert 10 < max(context.kept) <= 10 + 10 // 4 + 8, max(context.kept)


@when("{count:d} messages of 5 words are added one by one, unseen")
def step_count_messages_of_5_words_are_added_one_by_one_unseen(
    context: Context, count: int
) -> None:
    context.added = [user(f"message {n} of many messages") for n in range(count)]
    for message in context.added:
        context.memory.add(message)


@when("a request of 800 words is followed by 999 answers of one word, and a request of one word")
def step_a_request_of_800_words_is_followed_by_999_answers(context: Context) -> None:
    answers = [Message("assistant", str(number)) for number in range(999)]
    context.added = [user("word " * 800), *answers, user("now")]
    context.memory.load(context.added)


@then("it shows both requests, with the newest 199 answers")
def step_it_shows_both_requests_with_the_newest_199_answers(context: Context) -> None:
    shown = list(context.memory.get_messages())
    assert shown == [context.added[0], *context.added[-200:]], texts(shown)


@then("words were counted less than 50 times")
def step_words_were_counted_less_than_50_times(context: Context) -> None:
    assert context.words.counted < 50, context.words.counted


@then("words were counted less often than that")
def step_words_were_counted_less_often_than_that(context: Context) -> None:
    assert 0 < context.words.counted < len(context.added), context.words.counted
    assert len(context.memory._contents.entries) < 50, len(context.memory._entries)


@then("it shows the newest {count:d}")
def step_it_shows_the_newest_count(context: Context, count: int) -> None:
    shown = context.memory.get_messages()
    assert list(shown) == context.added[-count:], texts(shown)
    assert len(context.memory) == len(context.memory.to_langchain()) == count


@when("a long conversation with tools is added turn by turn")
def step_a_long_conversation_with_tools_is_added_turn_by_turn(context: Context) -> None:
    context.seen = []
    added: list[Message] = []
    for number in range(20):
        for piece in (
            [user(f"question {number}")],
            turn_of(f"first {number}"),
            turn_of(f"second {number}")[: 3 if number % 2 else 0],
            [Message("assistant", f"answer {number}")],
        ):
            added += piece
            context.memory.add_all(piece)
            context.seen.append((context.memory.get_messages(), added.copy()))


@then("each time no result stood without its call, and no call without its results")
def step_each_time_no_result_stood_without_its_call_and_no_call(context: Context) -> None:
    for shown, added in context.seen:
        check_tools(shown, added)


@when("these are added")
def step_these_are_added(context: Context) -> None:
    for row in context.table:
        calls = [{"name": "t", "args": {}, "id": each} for each in row.get("calls", "").split()]
        context.memory.add(
            Message(
                row["role"],
                row["content"],
                tool_calls=calls,
                tool_call_id=row.get("answers") or None,
            )
        )


@then('it shows "{shown}"')
def step_it_shows_shown(context: Context, shown: str) -> None:
    assert texts(context.memory.get_messages()) == quoted(shown), context.memory.get_messages()


@then("for {count:d} random conversations, it shows what it promises at every step")
def step_for_count_random_conversations_it_shows_what_it_promises(
    context: Context, count: int
) -> None:
    for seed in range(count):
        try:
            RandomTalk(seed).steps(40)
        except AssertionError as failure:
            raise AssertionError(f"with seed {seed}: {failure}") from failure


@when("{count:d} messages are added until one is refused")
def step_count_messages_are_added_until_one_is_refused(context: Context, count: int) -> None:
    context.added = []
    context.error = None
    for number in range(count):
        message = user(f"message {number} of many messages")
        context.error = error_of(lambda message=message: context.memory.add(message))  # type: ignore[misc]
        if context.error is not None:
            return
        context.added.append(message)


@then("what was refused is not there, and the error is the counter's own")
def step_what_was_refused_is_not_there_and_the_error_is_the(context: Context) -> None:
    assert context.error is context.words.error
    assert list(context.memory._contents.entries.values()) == context.added
    assert error_of(context.memory.get_messages) is context.error


@when("its counter counts again")
def step_its_counter_counts_again(context: Context) -> None:
    context.words.error = None


@then("it shows what was not refused")
def step_it_shows_what_was_not_refused(context: Context) -> None:
    assert list(context.memory.get_messages()) == context.added


@when("another thread clears it and adds a message while words are counted")
def step_another_thread_clears_it_and_adds_a_message_while_words(context: Context) -> None:
    context.memory.load([user("one two three four five") for _ in range(50)])
    context.message = user("new")

    def clear_and_add() -> None:
        context.memory.clear()
        context.memory.add(context.message)

    context.words.first = lambda: in_thread(clear_and_add)
    assert len(context.memory.get_messages()) == 20  # as it was when it was looked at


@then("it has that message alone")
def step_it_has_that_message_alone(context: Context) -> None:
    assert context.memory.get_messages() == (context.message,)


@when("another thread trims it and adds a message while words are counted")
def step_another_thread_trims_it_and_adds_a_message_while_words_are(context: Context) -> None:
    context.added = [user("one two three four five") for _ in range(50)]
    context.memory.load(context.added)

    def trim_and_add() -> None:
        context.memory.get_messages()
        context.added.append(user("six seven eight nine ten"))
        context.memory.add(context.added[-1])

    context.words.first = lambda: in_thread(trim_and_add)
    context.memory.get_messages()


@when("{threads:d} threads add {count:d} messages of 5 words each, and each {nth:d}th count raises")
def step_threads_threads_add_count_messages_of_5_words_each_and(
    context: Context, threads: int, count: int, nth: int
) -> None:
    counts = itertools.count(1)

    def raise_now_and_then() -> None:
        context.words.first = raise_now_and_then
        if next(counts) % nth == 0:
            raise LookupError("the counter's own error")

    def work(writer: int) -> list[Message]:
        added = []
        for number in range(count):
            message = user(f"message {number} of writer {writer}")
            if error_of(lambda message=message: context.memory.add(message)) is None:  # type: ignore[misc]
                added.append(message)
        return added

    context.words.first = raise_now_and_then
    context.accepted = in_threads(threads, work)
    context.words.first = None


@then("it shows the newest of those that were not refused, each thread's in its own order")
def step_it_shows_the_newest_of_those_that_were_not_refused_each(context: Context) -> None:
    shown = context.memory.get_messages()
    accepted_by_all = set(itertools.chain(*context.accepted))
    assert len(shown) == 50 and set(shown) <= accepted_by_all, texts(shown)
    assert len(accepted_by_all) < 500, "none was refused"
    for accepted in context.accepted:
        mine = [message for message in shown if message in accepted]
        assert mine == accepted[len(accepted) - len(mine) :], texts(mine)


@when("one message is added {count:d} times")
def step_one_message_is_added_count_times(context: Context, count: int) -> None:
    context.message = user("again")
    watch(context, [context.message] * count)


@then("it shows it {count:d} times, and keeps hardly more")
def step_it_shows_it_count_times_and_keeps_hardly_more(context: Context, count: int) -> None:
    assert context.memory.get_messages() == (context.message,) * count
    assert max(context.kept) <= count + count // 4 + 8, max(context.kept)


@when("a memory is made with {arguments}")
def step_a_memory_is_made_with_arguments(context: Context, arguments: str) -> None:
    context.error = error_of(
        lambda: eval(f"Memory({arguments})", {"Memory": Memory, "len": len, "sleep": asyncio.sleep})
    )
