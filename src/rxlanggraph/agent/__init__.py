"""Agents that hold under concurrency: their state, their memory, what they say, one run at a time.

A map; each imports only from those above it.

    conversation         what is said to an agent, and what it remembers
    state_machine        what it is doing
    output               what it says, shared out among those who listen
    run_lock             one run at a time
    run                  one run: what it has started, and what it says
    responder            what answers for it: a model, a function, a graph
    agent                the agent
    pool                 an agent for each thread of a stream, its memory kept
    mcp                  agents as tools of an MCP server; of the extra ``mcp``
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
