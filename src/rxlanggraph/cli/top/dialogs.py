"""Dialogs on top of the screen: a text to read, a question of yes or no, an answer to write."""

from __future__ import annotations

import json
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rxlanggraph.cli.tables import printable
from rxlanggraph.live.questions import from_json

__all__ = ["AnswerDialog", "AnswerValue", "ConfirmDialog", "TextDialog", "answer_value", "escaped"]

_STYLE = """
    align: center middle;
    & > .box { width: 98%; height: auto; max-height: 90%; border: round $foreground; padding: 0 1; }
"""


class AnswerValue(NamedTuple):
    """An answer: a value that JSON can hold."""

    value: Any


def escaped(text: str) -> Text:
    """Return text of a program as lines to be shown literally, without markup or controls."""
    return Text("\n".join(map(printable, text.expandtabs(4).split("\n"))))


def answer_value(text: str) -> AnswerValue:
    """Return what was written as JSON, if it is that; otherwise as text."""
    try:
        return AnswerValue(from_json(text))
    except (ValueError, RecursionError):
        return AnswerValue(text)


class TextDialog(ModalScreen[None]):
    """A text to read; it can be scrolled.

    Args:
        title: Its title.
        text: The text, which may come from the program.
        from_end: Whether its end is shown first.
    """

    DEFAULT_CSS = f"TextDialog {{ {_STYLE} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,s,enter", "dismiss", "Close")]

    def __init__(self, title: str, text: str, *, from_end: bool = False) -> None:
        super().__init__()
        self._title, self._text, self._from_end = title, text, from_end

    def compose(self) -> ComposeResult:
        """Show it in a box that has the focus."""
        with VerticalScroll(classes="box") as box:
            box.border_title = escaped(self._title).markup
            box.border_subtitle = "escape: back"
            yield Static(escaped(self._text))

    def on_mount(self) -> None:
        """Scroll to what is shown first."""
        if self._from_end:
            self.query_one(VerticalScroll).scroll_end(animate=False)


class ConfirmDialog(ModalScreen[bool]):
    """A question of yes or no.

    Args:
        text: The question.
    """

    DEFAULT_CSS = f"ConfirmDialog {{ {_STYLE} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show it in a box."""
        with Vertical(classes="box"):
            yield Static(escaped(f"{self._text}\n\ny: yes   n: no"))


class AnswerDialog(ModalScreen[AnswerValue | None]):
    """An answer to write; None if there is none.

    Args:
        text: The question.
    """

    DEFAULT_CSS = f"""
    AnswerDialog {{
        {_STYLE}
        VerticalScroll {{ height: auto; max-height: 10; }}
    }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show it above a line to write in, and what that line means."""
        with Vertical(classes="box"):
            with VerticalScroll(can_focus=False):
                yield Static(escaped(self._text))
            yield Input(placeholder="text or JSON")
            yield Static("", id="meaning")
            yield Static("enter: send   escape: back")

    def on_mount(self) -> None:
        """Write at once."""
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say whether it is sent as text or as JSON."""
        value = answer_value(event.value).value
        kind = "text" if isinstance(value, str) else "JSON"
        meaning = f"is sent as {kind}: {json.dumps(value, ensure_ascii=False)}"
        self.query_one("#meaning", Static).update(escaped(meaning))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send it."""
        self.dismiss(answer_value(event.value))
