from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.agent import Memory
from rxlanggraph.errors import AgentError
from support.agent.agent_memories import Late
from support.agent.agent_talk import Looker, check_whole, quoted, texts, turn_of, user
from support.concurrency.raising import error_of, errors_of
from support.concurrency.tasks import in_thread, run
from support.concurrency.waiting import in_threads


@when('a turn adds "a", others add "b", the turn adds "c", and looks')
def step_a_turn_adds_a_others_add_b_the_turn_adds_c_and_looks(context: Context) -> None:
    memory, context.turn = context.memory, context.memory.turn()
    with context.turn:
        memory.add("a")
        in_thread(lambda: memory.add("b"))
        memory.add("c")
        context.seen = texts(memory.get_messages())
        context.others = texts(in_thread(memory.get_messages))
        context.over = texts


@then('it saw "{mine}", and others "{others}" alone')
def step_it_saw_mine_and_others_others_alone(context: Context, mine: str, others: str) -> None:
    assert context.seen == quoted(mine), context.seen
    assert context.others == quoted(others), context.others


@when("the turn is over")
def step_the_turn_is_over(context: Context) -> None:
    assert context.turn.over


@when("a turn adds a message and {end}")
def step_a_turn_adds_a_message_and_end(context: Context, end: str) -> None:
    async def turn() -> None:
        if not isinstance(context.memory, Memory):
            await context.memory.add_all([user(1)])
            raise LookupError
        with context.memory.turn() as turn:
            context.memory.add(user(1))
            if end == "is discarded":
                turn.discard()
            elif end == "fails":
                raise LookupError
            else:
                await asyncio.get_running_loop().create_future()

    async def main() -> None:
        task = asyncio.create_task(turn())
        await asyncio.sleep(0)
        if end == "is cancelled":
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (end == "is cancelled")
        assert task.cancelled() or (task.exception() is None) == (end == "is discarded")

    run(main())


@then("the memory is empty")
def step_the_memory_is_empty(context: Context) -> None:
    assert context.memory.get_messages() == ()


@when("a turn is {ended:w} while {where} goes on, which then adds a message")
def step_a_turn_is_ended_while_where_goes_on_which_then_adds_a(
    context: Context, ended: str, where: str
) -> None:
    late = Late(context.memory)
    context.ended = ended
    run(late.leave_behind(where, fail=ended == "discarded"))
    context.error = late.error


@then('it got an AgentError that says "{ended}", and its message is not there')
def step_it_got_an_agenterror_that_says_ended_and_its_message_is(
    context: Context, ended: str
) -> None:
    assert type(context.error) is AgentError, repr(context.error)
    assert ended in str(context.error), context.error
    expected = ["in time"] if ended == "committed" else []
    assert texts(context.memory.get_messages()) == expected


@when("a task that a turn has left behind looks")
def step_a_task_that_a_turn_has_left_behind_looks(context: Context) -> None:
    async def look() -> None:
        context.seen = context.memory.get_messages()

    async def main() -> None:
        with context.memory.turn():
            context.memory.add("of the turn")
            task = asyncio.create_task(look())
        context.memory.add("of others")
        await task

    run(main())


@then("it saw what other code sees")
def step_it_saw_what_other_code_sees(context: Context) -> None:
    assert context.seen == context.memory.get_messages()
    assert texts(context.seen) == ["of the turn", "of others"]


@when("in a turn of it a turn of another memory adds to both")
def step_in_a_turn_of_it_a_turn_of_another_memory_adds_to_both(context: Context) -> None:
    context.another = Memory()
    with context.memory.turn(), context.another.turn():
        context.memory.add("outer")
        context.another.add("inner")
        assert texts(context.memory.get_messages()) == ["outer"]
        assert in_thread(context.memory.get_messages) == ()


@then("each message is in its own memory")
def step_each_message_is_in_its_own_memory(context: Context) -> None:
    assert texts(context.memory.get_messages()) == ["outer"]
    assert texts(context.another.get_messages()) == ["inner"]


@when("{threads:d} threads commit {count:d} turns of 3 messages each at once")
def step_threads_threads_commit_count_turns_of_3_messages_each_at(
    context: Context, threads: int, count: int
) -> None:
    context.expected = threads * count * 3

    def work(writer: int) -> None:
        for number in range(count):
            with context.memory.turn():
                for message in turn_of(f"{writer}-{number}"):
                    context.memory.add(message)

    looker = Looker(context.memory, check_whole)
    in_threads(threads, work)
    looker.stop()


@when('a turn adds "{added}", looks, and is discarded')
def step_a_turn_adds_added_looks_and_is_discarded(context: Context, added: str) -> None:
    with context.memory.turn() as turn:
        context.memory.add_all(quoted(added))
        context.seen = texts(context.memory.get_messages())
        turn.discard()


@then('the turn saw "{seen}"')
def step_the_turn_saw_seen(context: Context, seen: str) -> None:
    assert context.seen == quoted(seen), context.seen


@when("a turn is committed while its counter raises")
def step_a_turn_is_committed_while_its_counter_raises(context: Context) -> None:
    context.memory.load([user(n) for n in range(20)])

    def turn() -> None:
        with context.memory.turn():
            context.memory.add("of the turn")
            context.words.error = LookupError("the counter's own error")

    context.error = error_of(turn)


@then("the block raised the counter's own error, and nothing of the turn is there")
def step_the_block_raised_the_counters_own_error_and_nothing_of_the(context: Context) -> None:
    assert context.error is context.words.error
    context.words.error = None
    assert len(context.memory) == 20 and "of the turn" not in texts(context.memory.get_messages())


@when("another thread has {ended:w} a turn {when}")
def step_another_thread_has_ended_a_turn_when(context: Context, ended: str, when: str) -> None:
    memory = context.memory
    turn = memory.turn()
    end = turn.commit if ended == "committed" else turn.discard

    def block() -> None:
        # Its end counts, so many are there already; and there the other thread comes in.
        memory.load([user(n) for n in range(20)])
        with turn:
            memory.add("of the turn")
            if when == "as its block ends":
                context.words.first = lambda: in_thread(end)
            else:
                in_thread(end)

    context.errors = errors_of(block)
    assert context.words.first is None, "it was not counted"


@then("the turn is {ended:w}")
def step_the_turn_is_ended(context: Context, ended: str) -> None:
    there = texts(context.memory.get_messages()).count("of the turn")
    assert there == (ended == "committed"), there


@when("a task begins a turn in a generator, and another task {does}")
def step_a_task_begins_a_turn_in_a_generator_and_another_task_does(
    context: Context, does: str
) -> None:
    memory = context.memory

    async def generate() -> AsyncIterator[None]:
        with memory.turn():
            memory.add("of the turn")
            yield

    async def begin(generator: Any) -> None:
        await anext(generator)

    async def end(generator: Any) -> None:
        if does == "closes that":
            await generator.aclose()
        else:
            await anext(generator, None)
        memory.add("of the other task")

    async def main() -> None:
        generator = generate()
        await asyncio.create_task(begin(generator))
        await asyncio.create_task(end(generator))

    context.errors = errors_of(lambda: run(main()))


@then("what the other task adds then is there at once")
def step_what_the_other_task_adds_then_is_there_at_once(context: Context) -> None:
    assert texts(context.memory.get_messages())[-1] == "of the other task"


@when("a turn adds a message, clears the memory, adds another and is over")
def step_a_turn_adds_a_message_clears_the_memory_adds_another_and(context: Context) -> None:
    context.memory.add("before")
    with context.memory.turn():
        context.memory.add("first")
        context.memory.clear()
        assert context.memory.get_messages() == ()
        context.memory.add("last")


@then("only the last is there")
def step_only_the_last_is_there(context: Context) -> None:
    assert texts(context.memory.get_messages()) == ["last"]


def entered_twice(memory: Memory) -> None:
    with memory.turn() as turn, turn:
        pass


def cleared_late(memory: Memory) -> None:
    with memory.turn() as turn:
        turn.commit()
        memory.clear()


def ended_twice(memory: Memory, first: str, second: str) -> None:
    turn = memory.turn()
    getattr(turn, first)()
    getattr(turn, second)(*(["x"] if second == "add" else []))


TWICE: dict[str, Callable[[Memory], None]] = {
    "committed twice": lambda memory: ended_twice(memory, "commit", "commit"),
    "committed once discarded": lambda memory: ended_twice(memory, "discard", "commit"),
    "written to once committed": lambda memory: ended_twice(memory, "commit", "add"),
    "cleared once committed": cleared_late,
    "entered twice": entered_twice,
}


@when("a turn is {twice}")
def step_a_turn_is_twice(context: Context, twice: str) -> None:
    context.error = error_of(lambda: TWICE[twice](context.memory))
