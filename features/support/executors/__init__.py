"""Graphs that worker processes load, executors without an engine, and meetings with workers."""
