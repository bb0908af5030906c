"""Steps for questions that are answered from the page."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context
from langgraph.types import Interrupt, interrupt

from rxlanggraph import StreamMessage
from rxlanggraph.live import bridge_source
from rxlanggraph.live.questions import Questions
from support.concurrency.waiting import LIMIT, Gate, in_threads, thread
from support.live.pages import SECRET, make_world, open_page


@given("a bridge whose page is open")
def step_a_bridge_whose_page_is_open(context: Context) -> None:
    _wait_for_answers(context, LIMIT)  # on a busy machine, too
    open_page(context, make_world(context))


def _wait_for_answers(context: Context, seconds: float) -> None:
    patcher = mock.patch.object(bridge_source, "_ANSWER_SECONDS", seconds)
    patcher.start()
    context.add_cleanup(patcher.stop)


def _ask(context: Context, thread_id: str) -> None:
    context.thread_id = thread_id
    context.asked = context.world.send("ask", thread_id)
    context.world.finish()
    context.question = context.page.snapshot()["interrupts"][0]


@when('a message asks on the thread "{thread_id}"')
def step_a_message_asks_on_the_thread(context: Context, thread_id: str) -> None:
    _ask(context, thread_id)


@when('a message asks on the thread "{thread_id}", and waits when it is answered')
def step_a_message_asks_on_the_thread_and_waits(context: Context, thread_id: str) -> None:
    world = context.world
    _wait_for_answers(context, 0.05)

    async def check(state: Any) -> dict[str, Any]:
        interrupt({"may I": SECRET})
        await world.gate.wait_async()
        return {}

    _replace_check(world, check)
    _ask(context, thread_id)


@when('a message asks on the thread "{thread_id}", and again')
def step_a_message_asks_on_the_thread_and_again(context: Context, thread_id: str) -> None:
    async def check(state: Any) -> dict[str, Any]:
        interrupt({"may I": SECRET})
        interrupt({"really": SECRET})
        return {}

    _replace_check(context.world, check)
    _ask(context, thread_id)


def _replace_check(world: Any, check: Any) -> None:
    world.graph.nodes["check"].bound.afunc = check


@when("a message has asked before the page was made for its graph")
def step_a_message_has_asked_before_the_page_was_made(context: Context) -> None:
    world = context.world
    world.send("ask", "ada")
    world.finish()
    open_page(context, world, graphs=[world.graph])
    stream = context.page.listen()
    while not stream.next()[1]["interrupts"]:  # until the checkpoints were read
        pass
    stream.leave()
    context.thread_id, context.question = "ada", context.page.snapshot()["interrupts"][0]


@when('a streamed message asks on the thread "{thread_id}"')
def step_a_streamed_message_asks_on_the_thread(context: Context, thread_id: str) -> None:
    world = context.world
    message = StreamMessage({"do": "ask"}, thread_id=thread_id)

    async def read() -> None:
        async for _ in world.bridge.astream(world.graph, message, errors="emit"):
            pass

    asyncio.run(read())
    world.finish()
    context.thread_id, context.question = thread_id, context.page.snapshot()["interrupts"][0]


@then("the page has its question, with the value hidden")
@then("the page has its question")
def step_the_page_has_its_question(context: Context) -> None:
    question = context.question
    assert question["thread_id"] == context.thread_id and question["value"] is None, question
    assert not question["answering"]


def _answer(context: Context, value: Any = True) -> Any:
    path = f"/api/interrupts/{context.question['id']}/answer"
    return context.page.client.post(path, json={"value": value})


@when("it is answered with true")
def step_it_is_answered_with_true(context: Context) -> None:
    context.answer = _answer(context)


@when("it is answered by {count:d} clients at once")
def step_it_is_answered_by_clients_at_once(context: Context, count: int) -> None:
    context.answers = [
        response.status_code for response in in_threads(count, lambda n: _answer(context, n))
    ]


@when("it is answered, and again before the page hears of the end of the first answer")
def step_it_is_answered_and_again_before_the_page_hears_of_the_end(context: Context) -> None:
    ended, goes_on, settled = Gate(), Gate(), Questions.settled

    def wait_and_settle(*arguments: Any) -> None:
        ended.open()
        goes_on.wait()
        settled(*arguments)

    with mock.patch.object(Questions, "settled", wait_and_settle):
        first = thread(_answer, context)
        ended.wait()
        try:
            second = _answer(context)
        finally:
            goes_on.open()
    context.answers = [first.result(LIMIT).status_code, second.status_code]


@then("{won:d} answer is 200, and the other {lost:d} are 409")
def step_won_answer_is_200_and_the_other_lost_are_409(
    context: Context, won: int, lost: int
) -> None:
    assert sorted(context.answers) == won * [200] + lost * [409], context.answers


@then("the graph was answered once")
def step_the_graph_was_answered_once(context: Context) -> None:
    # The message and one answer: others have not reached the bridge at all.
    assert context.world.bridge.statistics().submitted == 2, context.world.bridge.statistics()


@when("it is answered behind the back of the page")
def step_it_is_answered_behind_the_back_of_the_page(context: Context) -> None:
    reply = context.asked.result(LIMIT).reply(True)
    config = {"configurable": {"thread_id": context.thread_id}}
    asyncio.run(context.world.graph.ainvoke(reply.content, config))


@given("the page is made anew, with content {shown}")
def step_the_page_is_made_anew_with_content(context: Context, shown: str) -> None:
    open_page(context, context.world, show_content=shown == "shown")


@when("it is answered behind the back of the page, and something else is asked")
def step_it_is_answered_behind_the_back_and_something_else_is_asked(context: Context) -> None:
    step_it_is_answered_behind_the_back_of_the_page(context)
    config = {"configurable": {"thread_id": context.thread_id}}
    asyncio.run(context.world.graph.ainvoke({"do": "ask"}, config))


@then("the answer is 409, which quotes {quotes}")
def step_the_answer_is_409_which_quotes(context: Context, quotes: str) -> None:
    assert context.answer.status_code == 409, context.answer.text
    assert (SECRET in context.answer.text) is (quotes == "what is pending"), context.answer.text


@when("a message asks with a config that fails on answers")
def step_a_message_asks_with_a_config_that_fails_on_answers(context: Context) -> None:
    def config(message: StreamMessage) -> dict[str, Any]:
        return {"tags": [str(1 // isinstance(message.content, dict))]}

    context.thread_id = "ada"
    context.world.send("ask", "ada", config=config)
    context.world.finish()
    context.question = context.page.snapshot()["interrupts"][0]


@when("the page, which was not told, answers too")
def step_the_page_which_was_not_told_answers_too(context: Context) -> None:
    step_it_is_answered_with_true(context)


@then("the answer is {status:d}, ended {ended:w}")
def step_the_answer_is_status_ended(context: Context, status: int, ended: str) -> None:
    assert context.answer.status_code == status, context.answer.text
    assert context.answer.json() == {"outcome": "ended", "status": ended}


@then('the answer is {status:d}, which says "{words}"')
def step_the_answer_is_status_which_says(context: Context, status: int, words: str) -> None:
    assert context.answer.status_code == status, context.answer.text
    assert words in context.answer.json()["error"], context.answer.text


@then("the answer is 409")
def step_the_answer_is_409(context: Context) -> None:
    assert context.answer.status_code == 409, context.answer.text


@then("the answer is 202, accepted")
def step_the_answer_is_202_accepted(context: Context) -> None:
    assert context.answer.status_code == 202, context.answer.text
    assert context.answer.json() == {"outcome": "accepted", "status": None}
    (question,) = context.page.snapshot()["interrupts"]
    assert question["answering"]


@then("a second answer is 409")
def step_a_second_answer_is_409(context: Context) -> None:
    assert _answer(context).status_code == 409
    context.world.gate.open()
    assert context.world.bridge.registry.wait_idle(LIMIT)
    assert context.page.snapshot()["interrupts"] == []


@then("the page has no question")
def step_the_page_has_no_question(context: Context) -> None:
    assert context.page.snapshot()["interrupts"] == []


@then("the page has 1 question")
def step_the_page_has_1_question(context: Context) -> None:
    (question,) = context.page.snapshot()["interrupts"]
    assert not question["answering"], question


@when("the bridge of the page is closed")
def step_the_bridge_of_the_page_is_closed(context: Context) -> None:
    context.world.bridge.close()


@when("{count:d} threads have asked one question each")
def step_threads_have_asked_one_question_each(context: Context, count: int) -> None:
    context.questions = Questions()
    for number in range(count):
        asked = [Interrupt("how many?", id=f"{number:032x}")]
        context.questions.asked("graph", f"t{number}", asked, 0.0, metadata={}, resume=None)


@then("the latest {count:d} are kept, and {forgotten:d} are counted as left out")
def step_the_latest_are_kept_and_are_counted_as_left_out(
    context: Context, count: int, forgotten: int
) -> None:
    pending, left_out = context.questions.pending(count)
    assert (len(pending), left_out) == (count, forgotten), (len(pending), left_out)
    assert pending[0].thread_id == f"t{forgotten}"
