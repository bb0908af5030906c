"""BaseAgent: one agent with a state, a memory and an output, shared by threads and loops.

Locking: `StateMachine`, `Memory` and `OutputQueue` each have a lock of their own, a leaf; `RunLock`
admits one run at a time. All other fields belong to the active run or are written once, so this
module needs no lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from rxlanggraph.agent.conversation.conversation import Conversation, current_conversation
from rxlanggraph.agent.conversation.mcp_text import extract_text
from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.conversation.messages import Message
from rxlanggraph.agent.listeners import AgentListeners
from rxlanggraph.agent.output.queue import OutputQueue, branch_of
from rxlanggraph.agent.output.run_stream import RunStream
from rxlanggraph.agent.requests import adds_to_memory, question_of, remember
from rxlanggraph.agent.responders.choice import make_responder
from rxlanggraph.agent.run import (
    AgentRun,
    RunPersistence,
    current_run_of,
    output_of_run,
    run_timeout,
    supervise,
)
from rxlanggraph.agent.run_lock import BusyPolicy, RunLock, refuse_overtaken
from rxlanggraph.agent.state_machine import AgentState, StateContext, StateMachine, Transition
from rxlanggraph.bridge.chunks import StreamMode, checked_modes
from rxlanggraph.errors import (
    AgentBusyError,
    AgentMessageError,
    BlockingCallError,
    InvalidArgumentError,
    InvalidTypeError,
)
from rxlanggraph.validation import check_name, check_timeout, check_whole

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from reactivex import Observable
    from reactivex.abc import DisposableBase

    from rxlanggraph.agent.conversation.messages import Content, Role
    from rxlanggraph.agent.output.stream import OutputStream
    from rxlanggraph.hooks import Hooks

__all__ = ["BaseAgent"]

_log = logging.getLogger("rxlanggraph")
_NO_REQUEST: Any = object()  # None is a request


class BaseAgent:
    """An agent that is safe under concurrency: use it from any number of threads and loops.

    Give it an ``llm`` or a ``graph``, or override `step`. Without any of them it adds requests to
    its memory and answers None.

    Args:
        name: Shown in errors and logs; the ``thread_id`` of a graph with a checkpointer.
        llm: A LangChain chat model, a Runnable, or an async function over the messages.
        graph: A compiled LangGraph graph; of messages if its state has a ``messages`` key.
        description: The description of the tool, where the agent is offered as one.
        max_steps: The maximum number of calls of `step` in one run.
        timeout: Seconds for a run, including its wait for earlier runs; ``math.inf`` for no limit.
        memory: A memory to start with, or one with limits; None makes an unlimited one.
        output_size: The maximum number of items in the output queue; 0 for no limit.
        stream_mode: LangGraph's mode of the chunks, or several of them, that each run puts out
            before its answer, as a `StreamMessage` with ``mode`` and ``sequence``; None for the
            answer alone. A chat model has ``"messages"``: its tokens.

    Raises:
        InvalidArgumentError: A number is out of range, the name is empty, or there are no chunks of
            that mode.
        InvalidTypeError: ``llm`` or ``graph`` has a type that cannot answer, or both were given; or
            ``memory`` is not a `Memory`.
    """

    def __init__(
        self,
        name: str,
        llm: Any = None,
        graph: Any = None,
        *,
        description: str = "",
        max_steps: int = 10,
        timeout: float = 30.0,
        memory: Memory | None = None,
        output_size: int = 0,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
    ) -> None:
        check_name("name", name)
        check_whole("max_steps", max_steps, least=1)
        self.name = name
        self.description = description
        self.max_steps = max_steps
        self.timeout = check_timeout("timeout", timeout)
        self.llm = llm
        self.graph = graph
        # One reference, replaced as a whole, by any thread.
        self._memory = Memory() if memory is None else _checked(memory)
        # Set once by a pool, for which this is the agent of one thread (`internal.bind_thread`).
        self._thread_id: str | None = None
        # Set by the pool for each run (`internal.persisted`).
        self._persistence: RunPersistence | None = None
        self.output_queue: OutputQueue[Any] = OutputQueue(
            output_size, direct=partial(output_of_run, self)
        )
        self._responder = make_responder(llm, graph)
        self.stream_mode = self._checked_modes(stream_mode)
        self._states = StateMachine(name)
        self._run_lock = RunLock(self._busy_error)
        self._listeners = AgentListeners()
        # The active run, if there is one: single calls of a list. The call that removes it ends it.
        # If its loop was closed, that is one of the next run, or its own, made by the collector.
        self._active: list[AgentRun] = []

    def __repr__(self) -> str:
        """Name the agent and its state."""
        return f"<{type(self).__name__} {self.name!r} {self.state.name}>"

    # Recognized by a bridge: what the graph asks is the result of the run.
    _takes_answers = True

    # -- state ---------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The state of the most recent open context; ERROR until `reset`. Any thread."""
        return self._states.state

    def state_context(self, state: AgentState) -> StateContext:
        """Be in ``state`` during a block, ``async with`` or ``with``. Any thread; never blocks.

        Contexts may overlap in any order: leaving one never undoes a newer one, and leaving the
        last restores the state before the first. An exception that leaves the block sets ERROR.

        Raises:
            InvalidArgumentError: ``state`` is not an `AgentState`.
            IllegalTransitionError: On entering: not allowed from the agent's current state.
            AgentError: On entering: the run that this code belongs to is over.
        """
        return self._states.context(state, current_run_of(self))

    @property
    def state_changes(self) -> Observable[Transition]:
        """Every change of state from the moment of subscribing. In the changing thread.

        Observers are called outside of any run and memory turn: what they start is independent.
        """
        return self._states.changes

    def state_history(self) -> tuple[Transition, ...]:
        """The last changes of state, with their times. Any thread; never blocks."""
        return self._states.history()

    def reset(self) -> None:
        """Leave ERROR. Any thread; never blocks. Memory and output are unchanged."""
        self._states.reset()

    # -- memory --------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """The agent's memory; in code of a conversation, its memory of that conversation.

        Each client of an MCP server has a conversation of its own, for example. Its memory begins
        as a copy of the agent's own, and adds nothing to that. Any thread; never blocks.

        Setting it in a conversation sets that one's. The active run adds to the former memory.

        Raises:
            InvalidTypeError: It is set to something other than a `Memory`.
        """
        return self._memory_in(current_conversation())

    @memory.setter
    def memory(self, memory: Memory) -> None:
        conversation = current_conversation()
        if conversation is None or self._thread_id is not None:
            self._memory = _checked(memory)
        else:
            conversation.remember(self, _checked(memory))

    def _memory_in(self, conversation: Conversation | None) -> Memory:
        if conversation is None or self._thread_id is not None:
            return self._memory
        return conversation.memory_of(self, self._memory)

    async def forget_thread(self, thread_id: str) -> None:
        """Make the graph, if it has a checkpointer, forget what it keeps under ``thread_id``.

        Any loop. If cancelled, it may or may not have done so.

        Raises:
            Exception: Whatever the checkpointer raised.
        """
        if self._responder is not None:
            await self._responder.forget(thread_id)

    def add_message(
        self,
        role: Role,
        content: Content,
        *,
        tool_calls: Iterable[Any] = (),
        tool_call_id: str | None = None,
        tool_name: str | None = None,
    ) -> Message:
        """Add one message to the memory. Any thread, any coroutine; never blocks.

        Within a run it belongs to that run's turn: other code sees it once the run has succeeded.

        Raises:
            InvalidArgumentError: ``role`` is not a known role.
        """
        message = Message(
            role,
            content,
            tool_calls=tuple(tool_calls),
            tool_call_id=tool_call_id,
            tool_name=tool_name,
        )
        self.memory.add(message)
        return message

    def add_messages(self, messages: Iterable[Any]) -> tuple[Message, ...]:
        """Add messages as one turn, with no other message between them. Any thread; never blocks.

        Args:
            messages: `Message`, LangChain messages, mappings, or strings for user messages.

        Raises:
            InvalidArgumentError, InvalidTypeError: One is not a message, or ``messages`` is a
                single one; none was added.
        """
        return self.memory.add_all(messages)

    # -- output --------------------------------------------------------------------------------

    @property
    def outputs(self) -> Observable[Any]:
        """Every item put into ``output_queue`` from the moment of subscribing, as an Observable.

        Observers are called outside of any run and memory turn: what they start is independent.
        """
        return self.output_queue.observable

    @overload
    def stream(
        self, *, timeout: float | None = None, broadcast: bool = False
    ) -> OutputStream[Any]: ...

    @overload
    def stream(
        self,
        request: Any,
        timeout: float | None = None,
        *,
        on_busy: BusyPolicy = "raise",
        reset: bool = False,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        context: Any = None,
    ) -> RunStream: ...

    def stream(
        self,
        request: Any = _NO_REQUEST,
        timeout: float | None = None,
        *,
        broadcast: bool = False,
        on_busy: BusyPolicy = "raise",
        reset: bool = False,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        context: Any = None,
    ) -> OutputStream[Any] | RunStream:
        """Iterate over the output, ``async for``, until the end of a run.

        With a ``request``, that is a run of its own, as made by `run`. Its output, and that of the
        tasks it started with its context, goes to this stream alone, apart from broadcasts and
        observers; ``output_size`` does not limit it. The stream raises what the run raises. Closing
        or dropping the stream cancels the run: ``async with`` closes it promptly.

        Without a request it is the stream of ``output_queue``, which other consumers read too; see
        `OutputQueue.stream`.

        Args:
            request: As for `run`.
            timeout: With a request, as for `run`. Without, seconds to wait for each item.
            broadcast: Without a request: get every item, also those that other consumers get.
            on_busy: With a request, as for `run`.
            reset: With a request, as for `run`.
            stream_mode: With a request: the mode, or modes, of the chunks that the run puts out
                before its answer, ``"messages"`` for the tokens of chat models. None takes the
                agent's. The run waits while 16 items are unread.
            context: With a request, as for `run`.

        Raises:
            InvalidArgumentError: ``timeout`` is out of range, or an argument is given that belongs
                to the other kind of stream.
        """
        if request is _NO_REQUEST:
            if on_busy != "raise" or reset or stream_mode is not None or context is not None:
                raise InvalidArgumentError(
                    "on_busy, reset, stream_mode and context are for a stream with a request; "
                    "leave them out, or pass one"
                )
            return self.output_queue.stream(timeout, broadcast=broadcast)
        if broadcast:
            raise InvalidArgumentError(
                "a stream with a request gets all items of its run anyway; leave out broadcast"
            )
        seconds = self.timeout if timeout is None else check_timeout("timeout", timeout)
        modes = self.stream_mode if stream_mode is None else self._checked_modes(stream_mode)

        def run(output: OutputQueue[Any]) -> Coroutine[Any, Any, object]:
            made = AgentRun(self, request, output=output, modes=modes, context=context)
            return self._enter(made, seconds, on_busy, reset=reset)

        return RunStream(run, branch_of(self.output_queue))

    def add_hooks(self, hooks: Hooks) -> DisposableBase:
        """Call the methods of ``hooks`` when a run begins and has ended, for traces.

        For runs that begin after this. Any thread; never blocks. Where a bridge calls the agent,
        the bridge's own hooks are called as well, for its run.

        Args:
            hooks: An instance of a subclass of `rxlanggraph.hooks.Hooks`, of which
                ``on_agent_started`` and ``on_agent_ended`` are called.

        Returns:
            A disposable; disposing it ends the calls.

        Raises:
            InvalidTypeError: It is not one, or has a hook that is async, a generator, not callable,
                or of an unknown name.
        """
        return self._listeners.add(hooks)

    # -- running -------------------------------------------------------------------------------

    async def run(
        self,
        request: Any = None,
        timeout: float | None = None,
        *,
        on_busy: BusyPolicy = "raise",
        reset: bool = False,
        context: Any = None,
    ) -> Any:
        """Answer ``request``: call `step` until it returns something other than None.

        Any loop of any thread; one run at a time. What the run adds to the memory becomes part of
        it at the end, atomically. If the run is cancelled, times out or fails, the memory stays as
        it was, and nothing that the run has started continues: the agent can be used again. A step,
        or a task, that resists cancellation is given five seconds to stop, then left behind and
        named in the log.

        Args:
            request: A string, a `Message`, a LangChain message, a mapping or a pair of role and
                content; a list of these, also as the ``messages`` of a mapping: these are added to
                the memory. Or any input of a graph without messages, or of your own step. None
                answers what is in the memory. ``Command(resume=...)`` answers the question of a
                graph with a checkpointer, and continues the run that asked it.
            timeout: Seconds, including the wait for earlier runs; None takes the agent's.
            on_busy: With another run active, ``"raise"`` an error, or ``"enqueue"``: wait for it.
            reset: Leave ERROR first. An agent in ERROR still works, but keeps showing ERROR.
            context: LangGraph's runtime context, for the agent's graph.

        Returns:
            What the last step returned; None after ``max_steps`` that returned None.

        Raises:
            AgentBusyError: Another run is active; with either policy, this call is part of it.
            AgentInterruptedError: The graph asks; its questions are the error's ``interrupts``.
                The agent is not in ERROR; an answer continues the run, another request drops it.
            StaleResumeError: The request answers a question that is not pending.
            RunTimeoutError: The time was up.
            InvalidArgumentError: ``timeout`` or ``on_busy`` is out of range, or the agent has no
                graph for the ``context``.
            InvalidTypeError: ``request`` should be a message, and is not; the agent is in ERROR.
            Exception: Whatever `step` raised; the agent is then in ERROR.
        """
        seconds = self.timeout if timeout is None else check_timeout("timeout", timeout)
        run = AgentRun(self, request, modes=self.stream_mode, context=context)
        return await self._enter(run, seconds, on_busy, reset=reset)

    def run_sync(
        self,
        request: Any = None,
        timeout: float | None = None,
        *,
        on_busy: BusyPolicy = "raise",
        reset: bool = False,
        context: Any = None,
    ) -> Any:
        """Sync form of `run`, for a thread without a loop: uses a loop of its own. Blocks.

        A sync model that exceeds the timeout keeps it waiting, as its thread cannot be cancelled;
        so does a step that resists cancellation.

        A client that is bound to one loop (as many HTTP clients are) needs a loop that persists: in
        that case use ``bridge.create_future_task(agent, request).result()``.

        Raises:
            BlockingCallError: Called in a running loop's thread.
        """
        if asyncio._get_running_loop() is not None:
            raise BlockingCallError(
                "run_sync() would block the event loop of this thread; use 'await agent.run()'"
            )
        return asyncio.run(
            self.run(request, timeout, on_busy=on_busy, reset=reset, context=context)
        )

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - as LangGraph has it
        config: RunnableConfig | None = None,
        *,
        context: Any = None,
        reset: bool = False,
    ) -> Any:
        """Answer ``input`` after the runs before it: what makes ``bridge.invoke(agent)`` work.

        Like `run`, but the wait for earlier runs does not count: the timeout is for the run alone.

        Args:
            input: The request.
            config: LangGraph's config: passed to the graph or the Runnable that answers. If it has
                no ``thread_id``, the agent's name is used.
            context: LangGraph's runtime context, for the agent's graph.
            reset: Leave ERROR first.

        Raises:
            InvalidArgumentError: ``config`` names two threads, or the agent has no graph for the
                ``context``.
            InvalidTypeError: ``config`` is not a mapping, or its ``thread_id`` is not a string.
            Exception: As `run`.
        """
        run = AgentRun(self, input, config, modes=self.stream_mode, context=context)
        return await self._enter(run, self.timeout, "enqueue", reset=reset, limits_wait=False)

    async def step(self) -> Any:
        """Do one step of a run; override it to make your own agent.

        On the loop of the run. In a step, `request` is that of the run, and the memory includes the
        messages that the run has added.

        Returns:
            The answer, which ends the run; None to be called again.
        """
        if self._responder is None:
            return None
        run = current_run_of(self)
        if run is None or run.memory is None:  # called outside of a run
            run = self._prepared(AgentRun(self, None))
        assert run.memory is not None
        with self._states.context(AgentState.THINKING, run):
            question = question_of(run, run.memory, self.output_queue.put_chunk)
            answer = await self._responder.answer(question)
        run.memory.add_all(answer.messages)
        await self.output_queue.put(answer.value)
        return answer.value

    @property
    def request(self) -> Any:
        """The request of the run that this code is part of, else of the active run, else None."""
        run = current_run_of(self) or next(iter(self._active.copy()), None)
        return None if run is None else run.request

    async def process_mcp_message(
        self,
        content: Any,
        sender: str,
        message: Any = None,
        agent_id: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Answer a message of another agent, in a run of its own, after the runs before it.

        Any loop. Cancelling it cancels the run.

        Args:
            content: The text, in any form of an MCP message; see `extract_text`.
            sender: The name of the sender, for errors.
            message: The message around the content; for overriding methods.
            agent_id: The agent that the sender addressed; for overriding methods.
            timeout: Seconds for waiting and answering together; None takes the agent's.

        Raises:
            AgentMessageError: There is no text in ``content``.
            RunTimeoutError: The time was up.
            Exception: Whatever the run raised.
        """
        try:
            text = extract_text(content)
        except AgentMessageError as error:
            raise AgentMessageError(f"from {sender!r} to {self!r}: {error}") from error
        return await self.run(text, timeout, on_busy="enqueue", reset=True)

    # -- inside --------------------------------------------------------------------------------

    def _busy_error(self) -> AgentBusyError:
        return AgentBusyError(
            f"{self!r} is busy: another run is active; wait with on_busy='enqueue', "
            "or use another agent"
        )

    async def _enter(
        self,
        run: AgentRun,
        seconds: float,
        on_busy: BusyPolicy,
        *,
        reset: bool,
        limits_wait: bool = True,
    ) -> Any:
        """Do ``run`` in its turn. ``seconds`` limits it, and with ``limits_wait`` the wait too."""
        if run.reentrant:
            raise AgentBusyError(
                f"{self!r} was asked by its own run, which would wait for itself; "
                "ask another agent, or answer in step()"
            )
        if run.context is not None and self.graph is None:
            raise InvalidArgumentError(
                f"{self!r} has no graph, and context is for one; leave it out, or pass graph="
            )
        refuse_overtaken(run.request, self._run_lock)
        turn = self._run_lock.entered(on_busy)
        limit = run_timeout(f"the run of agent {self.name!r}", seconds)
        outer, inner = (limit, turn) if limits_wait else (turn, limit)
        try:
            async with outer, inner:
                answer = await self._run(run, reset=reset)
        except BaseException as error:
            _tell_end(run, error)
            raise
        _tell_end(run, None)
        return answer

    async def _run(self, run: AgentRun, *, reset: bool) -> Any:
        if reset:
            self.reset()
        for before in self._active.copy():  # its loop was closed in the middle of the run
            _tell_end(before, asyncio.CancelledError())
            self._end_run(before, succeeded=False)
        self._active.append(self._prepared(run))
        run.persistence = self._persistence
        if self._listeners:
            run.observed = self._listeners.observed(self.name, run.thread_id)
        run.number = self.output_queue.begin()
        succeeded = False
        try:
            with self._states.context(AgentState.RUNNING, run):
                assert run.memory is not None
                answer = await supervise(run, run.memory, self._answer)
            succeeded = True
            return answer
        finally:
            self._end_run(run, succeeded=succeeded)

    def _end_run(self, run: AgentRun, *, succeeded: bool) -> None:
        """Mark ``run`` as over, and end its states and its output; unless that was done."""
        try:
            self._active.remove(run)
        except ValueError:
            return
        run.over = True
        self._states.abandon(run)  # blocks of tasks that have not ended, and perhaps never will
        if succeeded:
            self.output_queue.end(run.number)
            if run.persistence is not None:
                run.persistence.committed()
        else:
            self.output_queue.abort(run.number)

    def _prepared(self, run: AgentRun) -> AgentRun:
        conversation = run.conversation = current_conversation()
        run.memory = self._memory_in(conversation)
        if run.thread_id is None:
            own = self.name if conversation is None else conversation.thread_of(self)
            run.thread_id = self._thread_id or own
        return run

    async def _answer(self, run: AgentRun) -> Any:
        memory = run.memory
        assert memory is not None
        if run.persistence is not None:
            await run.persistence.load()
        responder = self._responder
        beginning = memory.beginning if responder is not None and responder.remembers else None
        if adds_to_memory(run.request, responder):
            remember(memory, run.request)
        answer = await self._steps()
        if responder is not None and beginning is not None:
            now = self.memory  # it may have been replaced
            if now.beginning is not beginning:
                await responder.begin_anew(question_of(run, now, self.output_queue.put_chunk))
        if run.persistence is not None:
            run.on_failure(run.persistence.roll_back)
            await run.persistence.save()
        return answer

    def _checked_modes(
        self, stream_mode: StreamMode | Sequence[StreamMode] | None
    ) -> tuple[StreamMode, ...]:
        if stream_mode is None:
            return ()
        modes = checked_modes(stream_mode)
        if self._responder is None:
            raise InvalidArgumentError(
                f"agent {self.name!r} has no llm or graph whose chunks stream_mode could choose; "
                "put what its step has to stream into output_queue"
            )
        self._responder.check_modes(modes)
        return modes

    async def _steps(self) -> Any:
        if type(self).step is BaseAgent.step:  # it ends the run even if it returns None
            return await self._one_step()
        for _ in range(self.max_steps):
            answer = await self._one_step()
            if answer is not None:
                return answer
        _log.warning("%r gave no answer in %d steps", self, self.max_steps)
        return None

    async def _one_step(self) -> Any:
        step: object = self.step()
        if not isinstance(step, Awaitable):
            raise InvalidTypeError(
                f"{type(self).__name__}.step must be 'async def'; it returned {step!r}"
            )
        answer = await step
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # again: the step has swallowed it
        return answer


def _tell_end(run: AgentRun, error: BaseException | None) -> None:
    """Tell hooks of the end of ``run``, if it has begun."""
    if run.observed is not None:
        run.observed.ended(error)


def _checked(memory: Memory) -> Memory:
    if not isinstance(memory, Memory):
        raise InvalidTypeError(f"memory must be a Memory, not {memory!r}")
    return memory
