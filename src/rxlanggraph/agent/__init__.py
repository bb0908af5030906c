"""Agents that hold under concurrency: their state, their memory, what they say, one run at a time.

A map of the modules; each imports only from those above it.

    checks, content      what arguments must be; the text in what others send
    messages             what is said in a conversation
    states               what an agent is doing
    trimming, memory     what it remembers
    output               what it says, shared out among those who listen
    line, guard          one run at a time
    runs                 what a run has started
    run_stream           what one run says
    graph_thread         the thread of a graph with a checkpointer
    answering            who answers for it: a model, a function, a graph
    base                 the agent
    keeping, pool        an agent for each thread of a stream, its memory kept
    mcp, serving         agents as tools of an MCP server; of the extra ``mcp``
"""

from rxlanggraph.agent.base import BaseAgent
from rxlanggraph.agent.memory import Memory, Turn
from rxlanggraph.agent.messages import Message, from_langchain, to_langchain
from rxlanggraph.agent.output import OutputQueue
from rxlanggraph.agent.pool import AgentPool
from rxlanggraph.agent.states import AgentState, StateContext, StateMachine, Transition

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
