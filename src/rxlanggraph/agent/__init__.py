"""Agents for concurrent callers: a state, a memory and an output each, and one run at a time.

A map; each imports only from those above it.

    conversation         messages, and the memory of them
    state_machine        the state of an agent
    output               its output, shared among consumers
    run_lock             one run at a time
    listeners            the hooks of an agent
    run                  one run: its messages, tasks and output
    responders           what answers: a model, a function, a graph
    requests             what a request adds to the memory, and what the responder is asked
    agent                the agent
    internal             what a pool does with an agent, and users cannot
    pool                 one agent per thread of a stream, with saved memories
    mcp                  agents as tools of an MCP server (extra ``mcp``)
"""

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.conversation.memory import Memory, Turn
from rxlanggraph.agent.conversation.messages import Message, from_langchain, to_langchain
from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.agent.pool import AgentPool
from rxlanggraph.agent.state_machine import AgentState, StateContext, StateMachine, Transition

__all__ = [
    "AgentPool",
    "AgentState",
    "BaseAgent",
    "Memory",
    "Message",
    "OutputQueue",
    "StateContext",
    "StateMachine",
    "Transition",
    "Turn",
    "from_langchain",
    "to_langchain",
]
