"""A human in the loop: questions of graphs as one stream, a person's approvals as another.

    python approvals.py

Each refund is a thread. Small ones are paid at once; for the others the graph asks (`interrupt`),
and its run ends with status "interrupted". The stream of these questions is joined with the stream
of approvals: where an approval names the refund of a question, `reply` makes the answer to that
very question, and the answer goes back into the pipeline like any other message. While a person
considers one refund, all others continue; no run is active for a refund that waits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypedDict

import reactivex as rx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from reactivex import operators as ops
from reactivex.scheduler import NewThreadScheduler
from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

LIMIT = 100
REFUNDS = {"R1": 20, "R2": 450, "R3": 99, "R4": 1200, "R5": 180}


class Refund(TypedDict, total=False):
    """What a thread remembers of its refund."""

    amount: int
    paid: int
    notes: Annotated[list[str], operator.add]


class Approval(NamedTuple):
    """What a person has decided about one refund."""

    refund: str
    granted: bool


async def check(state: Refund) -> Refund:
    """Ask a person about large refunds."""
    if state["amount"] <= LIMIT:
        return {"paid": state["amount"], "notes": ["small"]}
    granted = interrupt({"amount": state["amount"]})
    return {"paid": state["amount"] if granted else 0, "notes": ["asked"]}


def build() -> Any:
    """Return the compiled graph, with an empty memory."""
    builder = StateGraph(Refund).add_node("check", check)
    builder.add_edge(START, "check").add_edge("check", END)
    return builder.compile(checkpointer=InMemorySaver())


def joined(
    questions: rx.Observable[StreamMessage], approvals: rx.Observable[Approval]
) -> rx.Observable[StreamMessage]:
    """Return the answers: each question with the approval that names its refund."""

    def until_approved(question: StreamMessage) -> rx.Observable[Approval]:
        return approvals.pipe(ops.filter(lambda approval: approval.refund == question.thread_id))

    return questions.pipe(
        ops.join(approvals, until_approved, lambda _: rx.empty()),
        ops.filter(lambda pair: pair[0].thread_id == pair[1].refund),
        ops.map(lambda pair: pair[0].reply(pair[1].granted)),
    )


def refunds(
    bridge: RxPyLangGraphBridge,
    amounts: Mapping[str, int],
    decide: Callable[[StreamMessage], bool],
) -> rx.Observable[StreamMessage]:
    """Return a stream of the result of each refund.

    Args:
        bridge: Runs the graph.
        amounts: The amount of each refund, by its name.
        decide: Whether to grant the refund of a question. Called in a thread of its own, which
            stands in for the person: it may take any time.
    """
    orders = [StreamMessage({"amount": amount}, name) for name, amount in amounts.items()]
    answers: Subject[StreamMessage] = Subject()
    approvals: Subject[Approval] = Subject()
    person = NewThreadScheduler()

    def approve(question: StreamMessage) -> None:
        approvals.on_next(Approval(question.thread_id or "", decide(question)))

    def connected(results: rx.Observable[StreamMessage]) -> rx.Observable[StreamMessage]:
        questions = results.pipe(ops.filter(lambda result: result.status == "interrupted"))
        answered = joined(questions, approvals).pipe(ops.do_action(answers.on_next))
        decided = questions.pipe(ops.observe_on(person), ops.do_action(approve))
        return rx.merge(
            answered.pipe(ops.ignore_elements()),
            decided.pipe(ops.ignore_elements()),
            results.pipe(ops.filter(lambda result: result.status != "interrupted")),
        )

    # The answers first: the orders are emitted as soon as they are subscribed to.
    return rx.merge(answers, rx.from_iterable(orders)).pipe(
        bridge.invoke(build(), errors="emit"),
        ops.publish(connected),
        ops.take(len(orders)),
    )


def at_console(question: StreamMessage) -> bool:
    """Ask at the terminal. The end of the input is a no."""
    (asked,) = question.interrupts
    try:
        reply = input(f"Refund {asked.value['amount']} for {question.thread_id}? [y/n] ")
    except EOFError:
        return False
    return reply.strip().lower().startswith("y")


def main() -> None:
    """Print a line for each refund, as soon as it is decided."""

    def show(result: StreamMessage) -> None:
        paid, notes = result.content["paid"], ", ".join(result.content["notes"])
        print(f"{result.thread_id}: paid {paid} of {result.content['amount']} ({notes})")

    with RxPyLangGraphBridge() as bridge:
        refunds(bridge, REFUNDS, at_console).pipe(ops.do_action(show)).run()


if __name__ == "__main__":
    main()
