"""Futures, threads, tasks and loops: every module could be used in a program without LangGraph."""
