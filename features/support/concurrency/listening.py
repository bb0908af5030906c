"""Hearing what a logger says."""

from __future__ import annotations

import logging

__all__ = ["listening"]


class listening(logging.Handler):
    """The messages that a logger is given in a block."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> list[str]:
        self._logger.addHandler(self)
        return self.messages

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
