"""Futures, threads, tasks and loops: nothing that knows of messages.

Every module here could be used in another program; `leftovers`, in one with LangGraph.
"""
