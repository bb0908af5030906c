"""The command, its journal, and programs around it."""
