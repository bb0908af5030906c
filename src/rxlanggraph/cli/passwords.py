"""Passwords of servers from the environment, so that no command line shows them."""

from __future__ import annotations

import os
from pathlib import Path

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.stdio import print_stderr

__all__ = [
    "JOURNAL_PASSWORD",
    "LIVE_TOKEN",
    "PASSWORDS",
    "STATE_PASSWORD",
    "read_password",
    "warn_of_visible_password",
]

# The names of variables.
JOURNAL_PASSWORD = "RXLANGGRAPH_JOURNAL_PASSWORD"  # noqa: S105
STATE_PASSWORD = "RXLANGGRAPH_STATE_PASSWORD"  # noqa: S105
LIVE_TOKEN = "RXLANGGRAPH_LIVE_TOKEN"  # noqa: S105
PASSWORDS = (
    *(JOURNAL_PASSWORD, f"{JOURNAL_PASSWORD}_FILE"),
    *(STATE_PASSWORD, f"{STATE_PASSWORD}_FILE"),
    LIVE_TOKEN,
)
"""The variables that are no options."""


def read_password(variable: str) -> str | None:
    """Return the password that the environment sets; None if it sets none.

    Args:
        variable: The variable with the password. That with ``_FILE`` after its name may name a file
            with it instead.

    Raises:
        CommandError: It is set twice, or in a file that cannot be read.
    """
    file_variable = f"{variable}_FILE"
    password, file = os.environ.get(variable), os.environ.get(file_variable)
    if password and file:
        raise CommandError(f"{variable} and {file_variable} are both set; unset one of them")
    if not file:
        return password
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise CommandError(
            f"cannot read {file}, which {file_variable} names: {reason}; name a readable file"
        ) from None


def warn_of_visible_password(what: str, variable: str) -> None:
    """Print a warning: the command line shows a password to all users of this machine.

    Args:
        what: The password's owner.
        variable: The variable that may have it instead.
    """
    print_stderr(
        f"the password of the {what} is visible in the list of processes; leave it out of the "
        f"URL, and put it into {variable}, or into a file that {variable}_FILE names"
    )
