"""Shared state: ways to keep it, and what is done to its stores."""
