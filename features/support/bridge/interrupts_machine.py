"""Input and answers, good and stale, on two threads of a graph that asks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypedDict

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from rxlanggraph import StreamMessage
from rxlanggraph.bridge.graphs.interrupts import ThreadGate, UnnamedAnswers, is_command
from rxlanggraph.bridge.graphs.pending import PendingInterrupts
from rxlanggraph.testing import VirtualBridge
from support.bridge.interrupts_model import AskingThread, Question
from support.bridge.machines import BridgeMachine, Fault

__all__ = ["FAULTS", "InterruptsMachine"]

THREADS = ("t", "u")
KINDS = st.sampled_from(
    (
        "input, or reject",
        "input, or reject",
        "input, or discard",
        "nothing",
        "a reply",
        "a reply",
        "an old reply",
        "answers by id",
        "an answer with a source",
        "an answer",
        "an answer",
    )
)
# What comes, to which thread, which of the known questions it is about, whether it is cancelled.
MESSAGES = st.tuples(
    KINDS, st.sampled_from(THREADS), st.integers(0, 20), st.sampled_from((False,) * 9 + (True,))
)
Expectation = Callable[[], str]


class Said(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


def _asks(*questions: str) -> Any:
    async def ask(_: Said) -> Said:
        return {"said": [f"{question} {interrupt(question)}" for question in questions]}

    return ask


def _graph(questions: tuple[str, ...], *, side_by_side: bool) -> Any:
    builder: Any = StateGraph(Said)
    nodes = [(each,) for each in questions] if side_by_side else [questions]
    for number, asked in enumerate(nodes):
        name = f"node {number}"
        builder.add_node(name, _asks(*asked)).add_edge(START, name)
    return builder.compile(InMemorySaver())


class InterruptsMachine(BridgeMachine):
    """Some messages at a time, to a graph that asks questions, in turn or side by side."""

    def __init__(self) -> None:
        super().__init__()
        questions, side_by_side = self.options["questions"], self.options["side_by_side"]
        self.graph = _graph(questions, side_by_side=side_by_side)
        self.models = {each: AskingThread(questions, side_by_side=side_by_side) for each in THREADS}
        self._sent = 0
        # What each thread was seen to ask, in order, and the results that asked it.
        self._asked: dict[str, dict[Question, Any]] = {each: {} for each in THREADS}
        self._results: dict[str, list[tuple[StreamMessage, list[Question]]]] = {
            each: [] for each in THREADS
        }

    def make_bridge(self) -> VirtualBridge:
        return VirtualBridge(max_concurrency=self.options["max_concurrency"])

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=4))
    def send(self, messages: list[tuple[str, str, int, bool]]) -> None:
        """Some messages, before the loop sees the first of them."""
        sent = []
        for kind, thread, number, cancelled in messages:
            self._sent += 1
            message, options, expected = self._made(kind, thread, number)
            run = self.bridge.create_future_task(self.graph, message, errors="emit", **options)
            if cancelled:
                assert run.cancel()
            sent.append((thread, run, "cancelled" if cancelled else expected))
        self.settle()
        for thread, run, expectation in sent:
            self._check(thread, run, expectation)

    def _made(
        self, kind: str, thread: str, number: int
    ) -> tuple[StreamMessage, dict[str, Any], Expectation]:
        """A message, its options, and what is to become of it."""
        model, value = self.models[thread], str(self._sent)
        results = self._results[thread]
        result, questions = results[number % len(results)] if results else (None, [])
        if kind.startswith("input"):
            policy = kind.rpartition(" ")[2]
            message = StreamMessage({"said": [value]}, thread)
            return message, {"on_pending": policy}, lambda: model.take_input(value, policy)
        if kind == "nothing":
            return StreamMessage(None, thread), {}, model.go_on
        if kind == "an answer" or result is None:
            runs = model.runs
            message = StreamMessage(Command(resume=value), thread)
            return message, {}, lambda: model.take_blind(value, runs)
        if kind == "a reply":
            result, questions = results[-1]
        if kind == "an answer with a source":
            message = StreamMessage(Command(resume=value), thread, source=result)
            return message, {}, lambda: model.take_unnamed(value, questions)
        if kind == "answers by id":
            named = list(self._asked[thread])[-1 - number % 3 :]
            resume: Any = {self._asked[thread][each]: value for each in named}
            message = StreamMessage(Command(resume=resume), thread)
            return message, {}, lambda: model.take_answer(value, named)
        question = questions[number % len(questions)]
        message = result.reply(value, self._asked[thread][question])
        return message, {}, lambda: model.take_answer(value, [question])

    def _check(self, thread: str, run: Any, expectation: Expectation | str) -> None:
        model = self.models[thread]
        expected = expectation if isinstance(expectation, str) else expectation()
        assert run.done(), expected
        if expected == "cancelled":
            assert run.cancelled()
            return
        result = run.result(0)
        found = result.status if result.error is None else type(result.error).__name__
        assert found == expected, (found, expected, result.error, vars(model))
        if result.error is not None:
            refused = found in {"PendingInterruptError", "StaleResumeError"}
            assert result.status == ("rejected" if refused else "error"), result
        elif found == "ok":
            assert result.content["said"] == model.said, (result, model.said)
        else:
            self._note(thread, result)

    def _note(self, thread: str, result: StreamMessage) -> None:
        pending, asked = self.models[thread].pending(), self._asked[thread]
        assert [each.value for each in result.interrupts] == [text for _, text in pending], result
        for question, each in zip(pending, result.interrupts, strict=True):
            # One question has one id, and no other has it.
            assert asked.setdefault(question, each.id) == each.id, (question, result)
        assert len(set(asked.values())) == len(asked), asked
        self._results[thread].append((result, pending))

    @rule(thread=st.sampled_from((*THREADS, None)))
    def expire(self, thread: str | None) -> None:
        dropping = self.bridge.expire_interrupts(self.graph, 0, thread)
        dropped = {(each.thread_id, each.interrupt.value) for each in self.bridge.run(dropping)}
        expected = {
            (each, text)
            for each in THREADS
            if thread in {each, None}
            for _, text in self.models[each].expire()
        }
        assert dropped == expected, (dropped, expected)

    @invariant()
    def lists_what_is_pending(self) -> None:
        found = self.bridge.run(self.bridge.pending_interrupts(self.graph))
        listed = sorted((each.thread_id, each.interrupt.id) for each in found)
        assert listed == sorted(self._pending_ids()), (listed, self._asked)

    def _pending_ids(self) -> Iterable[tuple[str, Any]]:
        for thread, model in self.models.items():
            for question in model.pending():
                yield thread, self._asked[thread][question]

    @invariant()
    def adds_up(self) -> None:
        found = self.bridge.statistics()
        assert found.in_flight == 0 == len(self.bridge.registry), found
        assert found.submitted == found.succeeded + found.failed + found.cancelled, found


# -- faults that the machine has to see ------------------------------------------------------------


def _answers_whatever_is_asked(_gate: ThreadGate, message: Any, _resume: Any, _pending: Any) -> Any:
    return message.content


def _takes_all_input(gate: ThreadGate, message: Any, pending: Any) -> Any:
    return _admitted(gate, message, pending if is_command(message.content) else {})


async def _keeps(questions: PendingInterrupts, thread_id: str, _older_than: float) -> Any:
    return await questions.on_thread(thread_id)


_admitted = ThreadGate._admitted

FAULTS = {
    "an answer is taken whatever is asked": Fault(
        ThreadGate, "_answer", _answers_whatever_is_asked
    ),
    "an answer may be overtaken": Fault(UnnamedAnswers, "overtaken_by", lambda *_: None),
    "new input drops a question": Fault(ThreadGate, "_admitted", _takes_all_input),
    "an expired question stays": Fault(PendingInterrupts, "drop", _keeps),
}
