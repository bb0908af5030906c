"""Attempts at one message: whether another one begins, and from where it resumes.

What breaks without it: an attempt that sends its message again adds it to the thread's state again,
and repeats work that had ended; and a retry policy by exclusion ("retry all but a KeyError") treats
cancellation as one more reason to try again.

A graph that keeps checkpoints resumes from where the failed attempt left the thread. That state is
read from the thread itself: what is saved there is compared with what was saved before the attempt.
LangGraph saves a message as a checkpoint, and an answer (``Command``) as writes that are pending on
the checkpoint that asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from tenacity import (
    AsyncRetrying,
    DoAttempt,
    DoSleep,
    RetryCallState,
    stop_after_attempt,
    wait_random_exponential,
)

from rxlanggraph.bridge.graphs.configs import Config, layers_of, without_run_id
from rxlanggraph.bridge.graphs.interrupts import (
    ThreadGate,
    is_command,
    names_questions,
    questions_of,
    resume_of,
)
from rxlanggraph.bridge.graphs.tracebacks import without_machinery
from rxlanggraph.errors import InvalidArgumentError, error_text
from rxlanggraph.messages import StreamMessage

__all__ = ["ThreadAttempts", "of_other_loop", "retried", "retry_policy", "saver_of"]

# Of asyncio, whose lock another loop has used; of a thread of aiosqlite that has ended; and of one
# that is about to, as its connection is closed.
_OF_OTHER_LOOP = (
    "is bound to a different event loop",
    "threads can only be started once",
    "no active connection",
)
# Channels of pending writes that belong to no channel of the graph.
_ERROR, _RESUME = "__error__", "__resume__"


def retry_policy(retry: object) -> AsyncRetrying | None:
    """Return the policy that ``retry``, a number of retries or a policy, stands for. Any thread.

    Raises:
        InvalidArgumentError: It is neither, and not None.
    """
    if retry is None or isinstance(retry, AsyncRetrying):
        return retry
    if not isinstance(retry, int) or isinstance(retry, bool) or retry < 0:
        raise InvalidArgumentError(
            f"retry must be a number of retries or a tenacity.AsyncRetrying, not {retry!r}"
        )
    return AsyncRetrying(
        stop=stop_after_attempt(retry + 1),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        reraise=True,
    )


async def retried(
    retry: AsyncRetrying, attempt: Callable[[], Awaitable[Any]], may_go_on: Callable[[], bool]
) -> Any:
    """Call ``attempt`` as often as ``retry`` allows. On the loop.

    tenacity's own loop lets its policy decide about everything that an attempt raises. Here it
    decides only about an `Exception`, and only while ``may_go_on`` returns True; everything else,
    cancellation included, propagates at once.
    """
    retry = retry.copy()
    retry.begin()
    state = RetryCallState(retry, attempt, (), {})
    ended = None
    try:
        if not getattr(retry, "enabled", True):  # since tenacity 9.2
            return await attempt()
        while True:
            action = await retry.iter(state)
            if isinstance(action, DoAttempt):
                try:
                    state.set_result(await attempt())
                except Exception as error:
                    if not may_go_on():
                        raise
                    without_machinery(error)
                    state.set_exception((type(error), error, error.__traceback__))
            elif isinstance(action, DoSleep):
                ended = state.outcome
                assert ended is not None
                state.prepare_for_next_attempt()
                await retry.sleep(action)  # type: ignore[misc]  # typed for the sync Retrying
                if not may_go_on():
                    return ended.result()
            else:
                return action
    finally:
        # They refer to the exception or to the run, and the exception's traceback to this frame.
        state.outcome = ended = None
        del retry, state, attempt, may_go_on


def saver_of(graph: Any) -> Any:
    """Return the checkpoint saver of ``graph`` or what it wraps; None if a loop can use none.

    For a sequence, that of its first step: None for an input reaches no other.
    """
    *_, innermost = None, *layers_of(graph)  # None has no layers
    saver = getattr(innermost, "checkpointer", None)
    return saver if hasattr(saver, "aget_tuple") else None


def of_other_loop(graph: Any, error: BaseException) -> BaseException:
    """Return an error that names the saver of another loop, if ``error`` comes of that; or it.

    On the loop. Before it fails, a saver cannot be refused: as long as one loop alone uses it, most
    serve that one, whichever they were opened on.
    """
    saver = saver_of(graph)
    loop = getattr(saver, "loop", None)
    if (
        type(error) not in {RuntimeError, ValueError}
        or not isinstance(loop, asyncio.AbstractEventLoop)
        or loop is asyncio.get_running_loop()
        or not error_text(error).endswith(_OF_OTHER_LOOP)
    ):
        return error
    refusal = InvalidArgumentError(
        f"the {type(saver).__name__} of {graph!r} was opened on another event loop than that of "
        f"the bridge, and is used there too, or was closed: {error}; open it on the loop that the "
        "bridge adopts, RxPyLangGraphBridge(asyncio.get_running_loop()), and keep it open; for the "
        "command, in an async graph factory"
    )
    refusal.__cause__ = error
    return refusal


class _Saved(NamedTuple):
    """A thread's latest checkpoint, and the writes pending on it."""

    found: Any
    """The ``CheckpointTuple``."""

    writes: list[tuple[str, str, Any]]
    as_bytes: Any
    """The writes, for comparison: their values need not be comparable."""

    @property
    def checkpoint_id(self) -> str:
        """The id of the checkpoint."""
        checkpoint_id: str = self.found.config["configurable"]["checkpoint_id"]
        return checkpoint_id

    def answers_of(self, task: str) -> int:
        """How many answers ``task`` has taken."""
        return sum(len(value) for t, c, value in self.writes if (t, c) == (task, _RESUME))


class ThreadAttempts:
    """Starts the attempts at one message on a thread with checkpoints. Confined to the loop.

    Args:
        gate: What the message has to pass.
        message: The message.
        config: The run's config, with its thread.
        arguments: LangGraph's other arguments of the call.
        ainvoke: Called in the place of the graph's method of that name.
    """

    def __init__(
        self,
        gate: ThreadGate,
        message: StreamMessage,
        config: Config,
        arguments: Mapping[str, Any],
        ainvoke: Callable[..., Awaitable[Any]],
    ) -> None:
        self._ainvoke = ainvoke
        self._gate = gate
        self._message = message
        self._content = message.content  # as the graph gets it
        self._config = config
        self._arguments = arguments
        self._addressed = gate.names_checkpoint(config)
        self._latest = gate.latest(config)
        self._before: _Saved | None = None
        self._failed = False

    async def __call__(self) -> Any:
        """Make one attempt: the first, or one that resumes where the last one failed."""
        saved = await self._read()
        if self._failed and saved is not None and self._has_changed(saved):
            content, config = self._rest(saved), self._onward()
        else:
            self._before = saved
            if not self._gate.is_open(self._message.content, self._config):
                found = None if saved is None else saved.found
                self._content = await self._gate.admit_at(found, self._message)
                if is_command(self._content):
                    self._before = await self._read()  # it may have taken earlier answers away
            content, config = self._content, self._config
        self._failed, self._config = True, without_run_id(self._config)
        result = await self._ainvoke(content, config, **self._arguments)
        self._failed = False
        return result

    async def _read(self) -> _Saved | None:
        found = await self._gate.saver.aget_tuple(self._latest)
        if found is None:
            return None
        writes = [(t, c, value) for t, c, value in found.pending_writes or () if c != _ERROR]
        return _Saved(
            found,
            writes,
            self._gate.saver.serde.dumps_typed(writes) if is_command(self._content) else None,
        )

    def _has_changed(self, saved: _Saved) -> bool:
        before = self._before
        return before is None or (saved.checkpoint_id, saved.as_bytes) != (
            before.checkpoint_id,
            before.as_bytes,
        )

    def _rest(self, saved: _Saved) -> Any:
        """What of the message is still to be sent: the answers that have not been taken."""
        before = self._before
        if before is None or before.checkpoint_id != saved.checkpoint_id:
            return None  # LangGraph's way to say "resume"
        resume, asked = resume_of(self._content), questions_of(before.found)
        if not names_questions(resume):
            return None
        untaken = {
            question: answer
            for question, answer in resume.items()
            if question in asked
            and saved.answers_of(asked[question].task) == before.answers_of(asked[question].task)
        }
        return type(self._content)(resume=untaken) if untaken else None

    def _onward(self) -> Config:
        """The config from the second attempt on: the latest checkpoint, not a branch."""
        if not self._addressed:
            return self._config
        configurable = {**self._config.get("configurable", {}), "checkpoint_id": None}
        return {**self._config, "configurable": configurable}
