"""Histories of concurrent clients, and whether they are linearizable."""
