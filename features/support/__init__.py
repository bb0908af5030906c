"""Helpers of the scenarios. Behave puts `features/` on the path: ``from support import ...``."""
