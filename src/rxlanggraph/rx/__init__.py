"""Rx grammar under threads: notifications one at a time, nothing after the end."""
