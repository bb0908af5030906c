"""What is said to an agent, and what it remembers of that.

A map; each imports only from those above it.

    messages             one thing said, and its way to LangChain and back
    mcp_text             the text in what others send
    trimming             what is kept when there is no room for all
    memory               the messages of an agent, in turns
    conversation         one party's talk, with a memory of its own for each agent
    graph_thread         the thread of a graph with a checkpointer, put back after a failed run
    persistence          where memories are kept between runs
"""
