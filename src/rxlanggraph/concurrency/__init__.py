"""Futures, threads, tasks and loops: about no message.

Every module here could stand in another program.
"""
