"""Threads, loops, forks and explored interleavings, for the scenarios."""
