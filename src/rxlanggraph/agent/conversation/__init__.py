"""The messages of an agent, and the memory of them.

A map; each imports only from those above it.

    messages             one message, and its conversion to and from LangChain's
    mcp_text             the text of an MCP message
    trimming             the messages that a bounded memory keeps
    memory               the messages of an agent, in turns
    conversation         one party's exchange, with a memory for each agent
    graph_thread         a checkpointed graph's thread, rolled back after a failed run
    persistence          where memories are saved between runs
"""
