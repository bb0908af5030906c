"""Errors that stop a command, with their exit statuses.

Continues the tree of `rxlanggraph.errors`:

    RxLangGraphError
    └── CommandError               the command cannot continue; `status` is its exit status
        ├── TargetError            the named graph cannot be loaded
        ├── ProjectError           langgraph.json, or a file of variables, is wrong
        ├── SettingsError          the file of settings is wrong
        ├── ArgumentError          --context or --config is wrong
        ├── MetricsError           metrics cannot be served
        ├── LiveError              the live page cannot be served, or looked at
        ├── TracesError            traces cannot be exported
        ├── ExecutorError          no worker processes can be had
        ├── InputError             the input cannot be read, or is not CSV at all
        ├── OutputError            a record could not be written
        ├── JournalError           the journal does not answer
        ├── StateDownError         the server of a state does not answer
        ├── NotFoundError          a task or a key that was named is not there
        └── JournalMismatchError   the journal belongs to another run, or to none
"""

from __future__ import annotations

from enum import IntEnum

from rxlanggraph.errors import RxLangGraphError

__all__ = [
    "ArgumentError",
    "CommandError",
    "ExecutorError",
    "ExitStatus",
    "InputError",
    "JournalError",
    "JournalMismatchError",
    "LiveError",
    "MetricsError",
    "NotFoundError",
    "OutputError",
    "ProjectError",
    "SettingsError",
    "StateDownError",
    "TargetError",
    "TracesError",
]


class ExitStatus(IntEnum):
    """What the exit status of ``rxlanggraph`` means; 129 and more are 128 plus the signal."""

    OK = 0
    SOME_FAILED = 1
    USAGE = 2
    HALTED = 3
    OUTPUT_FAILED = 4
    JOURNAL_FAILED = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class CommandError(RxLangGraphError):
    """The command cannot go on; its message names the object and the remedy."""

    status = ExitStatus.USAGE


class TargetError(CommandError):
    """``MODULE_OR_FILE:GRAPH``, or a name in langgraph.json, does not lead to a graph."""


class ProjectError(CommandError):
    """A project's langgraph.json, or a file of environment variables, cannot be used."""


class SettingsError(CommandError):
    """The file of settings cannot be used."""


class ArgumentError(CommandError):
    """What ``--context`` or ``--config`` names cannot be passed to the graph."""


class MetricsError(CommandError):
    """Metrics cannot be served: the address is in use, or what serves them is not installed."""


class LiveError(CommandError):
    """The live page cannot be served, or looked at: its message says which, and why."""


class TracesError(CommandError):
    """Traces cannot be exported: OTEL_* variables name another exporter, or none is installed."""


class ExecutorError(CommandError):
    """Worker processes cannot be had: the cluster does not answer, or Ray is not installed."""


class InputError(CommandError):
    """The input cannot be opened, or reading it failed on the way."""


class OutputError(CommandError):
    """A record could not be written: the disk is full, or the reader has gone."""

    status = ExitStatus.OUTPUT_FAILED


class JournalError(CommandError):
    """The journal does not answer, refuses a request, or has lost data."""

    status = ExitStatus.JOURNAL_FAILED


class StateDownError(CommandError):
    """The server of a state does not answer."""

    status = ExitStatus.JOURNAL_FAILED


class NotFoundError(CommandError):
    """A task or a key that was named is not there."""

    status = ExitStatus.SOME_FAILED


class JournalMismatchError(CommandError):
    """The journal belongs to another run, was written by another version, or is not a journal."""
