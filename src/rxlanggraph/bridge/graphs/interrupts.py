"""Questions of graphs: what waits for an answer on a thread, and which message may reach it.

What breaks without it: of two answers to one question, LangGraph takes both; an answer to a
question that is gone is kept for the next one; new input drops the question silently.

LangGraph saves a question as a write that is pending on the thread's latest checkpoint. A message
to a thread is compared with these before its run starts: in its lane, so that no other run of this
bridge comes between the comparison and the run.

Rules:

1. An answer that names questions (``Command(resume={id: value})``) answers these, and only if all
   of them are pending. Ids are never used again.
2. An answer without an id is given the id of the question that it can mean: the only one pending,
   or, if the message has an interrupted result as its ``source``, the only one of that result's.
   LangGraph never gets it without an id: it would keep it for whatever is asked next. An answer
   without an id that other software has left on the thread is removed once it was used. An answer
   that was taken by a run that did not end is replaced when its question is answered again:
   LangGraph would give the second answer to the next question.
3. An answer without an id or a source means what was pending when it was given. It is refused if a
   run of its thread was under way then, or has come before it since: what is pending now may have
   been asked by that run.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from reprlib import repr as shortened
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

from rxlanggraph.bridge.graphs.configs import Config, configurable_of, layers_of
from rxlanggraph.errors import (
    InvalidArgumentError,
    PendingInterruptError,
    RunDrainedError,
    RunRejectedError,
    StaleResumeError,
)
from rxlanggraph.messages import StreamMessage

__all__ = [
    "INTERRUPT",
    "OnPending",
    "Refusal",
    "ThreadGate",
    "UnnamedAnswers",
    "answers_unnamed",
    "asked",
    "check_on_pending",
    "is_command",
    "named_by_source",
    "names_questions",
    "overtaken_answer",
    "questions_of",
    "resume_of",
]

OnPending: TypeAlias = Literal["reject", "discard"]
"""What happens to new input on a thread that waits for an answer."""

INTERRUPT = "__interrupt__"
"""The key of a run's questions in LangGraph's results, and the channel that they are saved in."""

# LangGraph's other channels of pending writes that say what happened to a task. A task has ended if
# and only if it has writes beside these: its question is not pending then.
_RESUME = "__resume__"
_CONTROL = frozenset({"__error__", "__error_source_node__", INTERRUPT, _RESUME})
# The task under which LangGraph saves what is pending on the thread itself.
_NO_TASK = "00000000-0000-0000-0000-000000000000"
# LangGraph takes a mapping whose keys all look like this for a mapping of ids to answers.
_ID = re.compile(r"[0-9a-f]{32}")


class Refusal(BaseException):
    """Raised in the place of an attempt: a message is refused by its thread, or not begun.

    Not an `Exception`, so that no retry policy is asked about it.

    Args:
        error: The error of the run.
    """

    def __init__(self, error: RunRejectedError | RunDrainedError) -> None:
        super().__init__(error)
        self.error = error


class _ThreadRun(Protocol):
    """A `Run`, which is below this module on the map."""

    message: StreamMessage
    options: Any
    overtaken: bool


class Question(NamedTuple):
    """A pending question, and the task that asks it."""

    interrupt: Any
    task: str


def asked(content: Any) -> tuple[Any, ...]:
    """Return the questions in what a graph returned, each once. Any thread; never blocks.

    Args:
        content: What it returned: its state; or, of a graph that is bound to a ``stream_mode``, a
            list of chunks, the last of which have the questions.
    """
    chunks = content if type(content) is list else [content]
    questions: dict[Any, Any] = {}
    for chunk in reversed(chunks):
        payload = chunk[-1] if type(chunk) is tuple and chunk else chunk  # behind its mode
        if type(payload) is not dict or INTERRUPT not in payload:
            break
        found = payload[INTERRUPT]
        of_chunk = map(_as_interrupt, found if isinstance(found, list | tuple) else (found,))
        questions = {getattr(each, "id", id(each)): each for each in of_chunk} | questions
    return tuple(questions.values())


def _as_interrupt(question: Any) -> Any:
    """LangGraph's ``Interrupt``, also of a server's graph, whose questions come as dicts."""
    types = sys.modules.get("langgraph.types")
    if type(question) is not dict or "value" not in question or types is None:
        return question
    known = {field.name for field in dataclasses.fields(types.Interrupt)}
    return types.Interrupt(**{key: value for key, value in question.items() if key in known})


def questions_of(found: Any) -> dict[str, Question]:
    """Return the questions that are pending on a checkpoint, by their ids. Any thread.

    Args:
        found: The ``CheckpointTuple`` of a saver; None if the thread has none.
    """
    writes = () if found is None else found.pending_writes or ()
    ended = {task for task, channel, _ in writes if channel not in _CONTROL}
    return {
        interrupt.id: Question(interrupt, task)
        for task, channel, value in writes
        if channel == INTERRUPT and task not in ended
        for interrupt in (value if isinstance(value, list | tuple) else (value,))
    }


def is_command(content: Any) -> bool:
    """Whether ``content`` is LangGraph's ``Command``. Any thread; never blocks."""
    # Code that has made one has imported it.
    types = sys.modules.get("langgraph.types")
    return types is not None and isinstance(content, types.Command)


def resume_of(content: Any) -> Any:
    """Return the answer in ``content``; None if that is not a ``Command`` with one. Any thread."""
    return content.resume if is_command(content) else None


def names_questions(resume: Any) -> bool:
    """Whether an answer is a mapping of ids to answers. Any thread; never blocks."""
    return isinstance(resume, dict) and all(
        isinstance(key, str) and _ID.fullmatch(key) is not None for key in resume
    )


def answers_unnamed(content: Any) -> bool:
    """Whether ``content`` is an answer that names no question. Any thread; never blocks."""
    resume = resume_of(content)
    return resume is not None and not names_questions(resume)


def named_by_source(message: StreamMessage) -> Any:
    """Return the content of ``message``; an answer names the question of its source, if it has one.

    Any thread; never blocks.
    """
    of_source = _asked_by_source(message)
    if of_source is None or len(of_source) != 1 or not answers_unnamed(message.content):
        return message.content
    (question,) = of_source
    return dataclasses.replace(message.content, resume={question: message.content.resume})


def _asked_by_source(message: StreamMessage) -> set[str] | None:
    """The ids of the questions of the result that a message replies to; None if it has none."""
    source = message.source
    if source is None or source.status != "interrupted" or source.error is not None:
        return None
    return {interrupt.id for interrupt in source.interrupts}


class UnnamedAnswers:
    """The answers in flight that name no question, until they start (rule 3).

    Few messages are such answers, and all others pay for a look at `waiting` alone, without the
    lock: an answer that is given at the same time counts as given after that.

    Guarded by the lock of the bridge, an RLock; each section is a single change of one dict or set,
    so that a signal handler may enter between any two lines.
    """

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.waiting: dict[str, set[_ThreadRun]] = {}  # by thread

    def given(self, run: _ThreadRun) -> None:
        """Note that ``run`` was made, if it is such an answer. Any thread; never blocks."""
        message = run.message
        if message.thread_id is None or not answers_unnamed(message.content):
            return
        if _asked_by_source(message) is None:
            with self._lock:
                self._add(message.thread_id, run)

    def _add(self, thread_id: str, run: _ThreadRun) -> None:
        while True:
            runs = self.waiting.setdefault(thread_id, set())
            runs.add(run)
            if self.waiting.get(thread_id) is runs:  # a handler may have removed it in between
                return

    def overtaken_by(self, run: _ThreadRun) -> None:
        """Note that ``run`` has used its thread. Any thread; never blocks.

        Called before its result can be seen, for that may lead to an answer.
        """
        thread_id = run.message.thread_id
        if thread_id is None or not run.options.adapter.takes_answers:
            return
        with self._lock:
            answers = self.waiting.get(thread_id, ())
            for answer in tuple(answers):
                if answer is not run:
                    answer.overtaken = True

    def forget(self, run: _ThreadRun) -> None:
        """Forget ``run``, which has ended. Any thread; never blocks."""
        thread_id = run.message.thread_id
        if thread_id is None:
            return
        with self._lock:
            answers = self.waiting.get(thread_id, set())
            answers.discard(run)
            if not answers:
                for late in self.waiting.pop(thread_id, ()):  # added by a handler in between
                    self._add(thread_id, late)


class ThreadGate:
    """Which message may come to a thread of a graph. Immutable; its methods are for any thread.

    Args:
        graph: The graph.
        saver: Its checkpoint saver.
        on_pending: What happens to new input on a thread that waits for an answer.
        lent: The saver that the graph is to use instead of its own; None for its own.
    """

    def __init__(
        self, graph: Any, saver: Any, on_pending: OnPending, lent: Any | None = None
    ) -> None:
        self.saver = saver
        self.lent = lent
        self._graph = graph
        self._rejects = on_pending == "reject"

    def latest(self, config: Config) -> dict[str, Any]:
        """The config by which the saver finds the latest checkpoint of the thread."""
        configurable = {**configurable_of(self._graph, config), "checkpoint_id": None}
        return {"configurable": {"checkpoint_ns": "", **configurable}}

    def is_open(self, content: Any, config: Config) -> bool:
        """Whether ``content`` may come to the thread whatever is pending there.

        A run that names a checkpoint goes back on purpose.
        """
        if self._rejects or content is None or is_command(content):
            return self.names_checkpoint(config)
        return True

    def names_checkpoint(self, config: Config) -> bool:
        """Whether the run is to begin at a certain checkpoint, not at the latest one."""
        return configurable_of(self._graph, config).get("checkpoint_id") is not None

    async def admit(self, message: StreamMessage, config: Config) -> Any:
        """Return what of ``message`` its graph is to get. On the loop, in the task of its run.

        Raises:
            Refusal: It may not come to the thread.
        """
        if self.is_open(message.content, config):
            return message.content
        return await self.admit_at(await self.saver.aget_tuple(self.latest(config)), message)

    async def admit_at(self, found: Any, message: StreamMessage) -> Any:
        """As `admit`, with the latest checkpoint of the thread at hand.

        Args:
            found: The ``CheckpointTuple``; None if the thread has none.
            message: The message.
        """
        pending = questions_of(found)
        content = self._admitted(message, pending)
        if pending and _has_used_answer(found):
            await self.saver.aput_writes(found.config, [(_RESUME, None)], _NO_TASK)
        resume = resume_of(content)
        if resume is not None and names_questions(resume):
            *_, graph = layers_of(self._graph)
            for question in resume:
                await self._untake(graph, found, "", question)
        return content

    async def _untake(self, graph: Any, found: Any, within: str, question: str) -> None:
        """Take away an answer to ``question`` that a run has taken which did not end.

        LangGraph saves an answer when it is taken, and appends the next one: that would answer the
        next question. In a subgraph it is saved on a checkpoint of the subgraph's own.

        Args:
            graph: The graph, or the subgraph.
            found: Its latest checkpoint on the thread.
            within: The namespace of the subgraph, with a separator.
            question: The id of the question, which is derived from the namespace of its task and
                from how many answers that has.
        """
        for task, answers in _answers_by_task(found):
            namespaces = [f"{within}{name}:{task}" for name in graph.nodes]
            earlier = _earlier_than(question, namespaces, answers)
            if earlier is not None:
                await self.saver.aput_writes(found.config, [(_RESUME, earlier)], task)
                return
        asks = questions_of(found).get(question)
        if asks is None:
            return
        for name, subgraph in graph.get_subgraphs():
            namespace = f"{within}{name}:{asks.task}"
            at = {**found.config["configurable"], "checkpoint_ns": namespace, "checkpoint_id": None}
            inside = await self.saver.aget_tuple({"configurable": at})
            if inside is not None:
                await self._untake(subgraph, inside, f"{namespace}|", question)

    def _admitted(self, message: StreamMessage, pending: dict[str, Question]) -> Any:
        resume = resume_of(message.content)
        if resume is not None:
            return self._answer(message, resume, pending)
        if not (pending and self._rejects) or message.content is None:
            return message.content
        interrupts = _interrupts(pending)
        raise Refusal(
            PendingInterruptError(
                f"thread {message.thread_id!r} waits for an answer to {_described(interrupts)}; "
                "answer with Command(resume={id: value}), or drop the question with "
                "on_pending='discard'",
                interrupts=interrupts,
            )
        )

    def _answer(self, message: StreamMessage, resume: Any, pending: dict[str, Question]) -> Any:
        if names_questions(resume):
            meant = set(resume)
            answered = meant if meant <= pending.keys() else set()
        else:
            of_source = _asked_by_source(message)
            meant = set(pending) if of_source is None else of_source
            answered = meant & pending.keys()
        if answered:
            if len(answered) == 1 and not names_questions(resume):
                (question,) = answered
                return dataclasses.replace(message.content, resume={question: resume})
            return message.content  # of several, LangGraph asks for the ids
        interrupts = _interrupts(pending)
        raise Refusal(StaleResumeError(_stale(message, meant, interrupts), interrupts=interrupts))


def _has_used_answer(found: Any) -> bool:
    """Whether LangGraph keeps an answer on the thread, for any question, that was used once."""
    return any(_answers_by_task(found)) and any(
        (task, channel) == (_NO_TASK, _RESUME) and value is not None
        for task, channel, value in found.pending_writes
    )


def _answers_by_task(found: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the answers that each task has taken, in the order of its questions."""
    for task, channel, value in found.pending_writes or ():
        if channel == _RESUME and task != _NO_TASK:
            yield task, list(value)


def _earlier_than(question: str, namespaces: Iterable[str], answers: list[Any]) -> list[Any] | None:
    """The answers of a task to earlier questions than ``question``; None if that is not answered.

    Args:
        question: The id of the question.
        namespaces: That of the task is among them.
        answers: The answers that the task has taken.
    """
    id_of = getattr(sys.modules.get("langgraph.types"), "_interrupt_id", None)
    if id_of is None:  # it is private: another release may not have it
        return None
    for namespace, count in itertools.product(namespaces, range(len(answers))):
        if id_of(namespace, count) == question:
            return answers[:count]
    return None


def _interrupts(pending: Mapping[str, Question]) -> tuple[Any, ...]:
    return tuple(question.interrupt for question in pending.values())


def _described(interrupts: Iterable[Any]) -> str:
    return ", ".join(f"{shortened(each.value)} (id {each.id})" for each in interrupts)


def _stale(message: StreamMessage, meant: set[str], interrupts: tuple[Any, ...]) -> str:
    where = f"on thread {message.thread_id!r}"
    waits = f"{_described(interrupts)} is pending there" if interrupts else "nothing is asked there"
    if meant:
        ids = ", ".join(sorted(meant))
        return (
            f"the question of this answer, {ids}, is not pending {where}: it was answered or "
            f"dropped; {waits}"
        )
    return f"this answer has no question {where}: {waits}; send None to continue from a breakpoint"


def overtaken_answer(message: StreamMessage) -> Refusal:
    """Return how an answer ends that names no question, and was overtaken (rule 3)."""
    return Refusal(
        StaleResumeError(
            f"this answer names no question, and another run was active on thread "
            f"{message.thread_id!r} when it was given, or since, and may have asked something "
            "else. Name the question: result.reply(value), or Command(resume={id: value})"
        )
    )


def check_on_pending(on_pending: object) -> OnPending:
    """Return the policy. Any thread.

    Raises:
        InvalidArgumentError: It is unknown.
    """
    for known in get_args(OnPending):
        if on_pending == known:
            policy: OnPending = known
            return policy
    raise InvalidArgumentError(f"on_pending must be 'reject' or 'discard', not {on_pending!r}")
