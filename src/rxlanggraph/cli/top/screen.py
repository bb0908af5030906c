"""TopApp: the screen of ``rxlanggraph top``, with Textual. One loop."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.coordinate import Coordinate
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Sparkline, Static, Tab, Tabs

from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.tables import printable
from rxlanggraph.cli.top.dialogs import (
    AnswerDialog,
    AnswerValue,
    ConfirmDialog,
    TextDialog,
    escaped,
)
from rxlanggraph.cli.top.views import VIEWS, Row, View, counts_of, shown_views, throughput
from rxlanggraph.cli.top.watch import Ended, Lost, Update, Watch
from rxlanggraph.live.schema import Snapshot

__all__ = ["TopApp"]

# Seconds of which the throughput is drawn.
_DRAWN_SECONDS = 120
_VIEWS: Final = {view.name: view for view in VIEWS}
_NO_RUN = "select a run first, in Runs or Stuck"
_OVER = "it is not in flight any more"
_T = TypeVar("_T")
_HELP = """\
tab, shift+tab  the next and the previous view
arrows          select a row; below the table is more about it
enter           all about the selected row
c               cancel the selected run, after a question
s               the stack of the selected run: where it is now
a               answer the selected question: JSON, or else text;
                "42" in quotes is text
/               only rows whose thread or graph has a text in it
escape          all rows again
p               pause: the screen stays as it is, the program goes on
q, ctrl+c       quit; the program that is looked at goes on

"waited" is the time in the queue, "try" the number of the attempt.
"asks: hidden" is a question whose content the page does not show; it
can be answered all the same. Keys that a page does not allow do
nothing: of a journal, c, s and a."""


class _Found(NamedTuple, Generic[_T]):
    """What a request has returned."""

    value: _T


class TopApp(App[ExitStatus | CommandError]):
    """The application: it returns an exit status, or the error that ended it.

    Args:
        watch: What it shows.
        first: A snapshot of that, to begin with.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, watch: Watch, first: Snapshot) -> None:
        super().__init__()
        self._watch, self._first = watch, first

    def get_default_screen(self) -> Screen[None]:
        """Begin with the only screen."""
        return _TopScreen(self._watch, self._first)

    def action_interrupt(self) -> None:
        """End as other commands do with Ctrl-C, which does not come as a signal here."""
        self.exit(ExitStatus.INTERRUPTED)


class _TopScreen(Screen[None]):
    """The screen.

    Args:
        watch: What it shows.
        first: A snapshot of that.
    """

    DEFAULT_CSS = """
    _TopScreen {
        layout: vertical;
        #head, #counts { height: auto; max-height: 2; }
        #head { text-style: bold; }
        #speed { height: 1; }
        #speed Static { width: auto; }
        #speed Sparkline { width: 1fr; margin-left: 1; }
        DataTable { height: 1fr; min-height: 4; }
        #about { height: auto; max-height: 35%; border-top: solid $foreground; }
        #filter { display: none; height: 1; border: none; padding: 0; }
    }
    """
    AUTO_FOCUS = "DataTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "Cancel"),
        Binding("a", "answer", "Answer"),
        Binding("s", "stack", "Stack"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("p", "pause", "Pause"),
        Binding("tab", "next_view(1)", "View"),
        Binding("shift+tab", "next_view(-1)", show=False),
        Binding("escape", "end_filter", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, watch: Watch, first: Snapshot) -> None:
        super().__init__()
        self._watch = watch
        self._latest = self._snapshot = first  # the newest one, and the one on the screen
        self._connection = "connected"
        self._paused = False
        self._filter = ""
        self._view = shown_views(first)[0]
        self._rows: dict[str, Row] = {}
        self._widths: list[int] = []

    def compose(self) -> ComposeResult:
        """Lay it out from top to bottom."""
        yield Static(id="head")
        yield Static(id="counts")
        with Horizontal(id="speed"):
            yield Static()
            yield Sparkline()
        tabs = Tabs(*(Tab(view.title, id=view.name) for view in VIEWS), active=self._view.name)
        tabs.can_focus = False  # the keys are the table's
        yield tabs
        yield DataTable(cursor_type="row")
        with VerticalScroll(id="about", can_focus=False):
            yield Static()
        yield Input(placeholder="thread or graph; enter: keep, escape: all", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Show the first snapshot, and follow what comes."""
        self._show()
        self._follow()

    @work
    async def _follow(self) -> None:
        try:
            async with contextlib.aclosing(self._watch.updates()) as updates:
                async for update in updates:
                    self._take(update)
        except NoMatches:
            if self.query("#head"):
                raise
            # Otherwise the screen is being left, and has lost its parts already.
        except CommandError as error:
            self.app.exit(error)

    def _take(self, update: Update) -> None:
        if isinstance(update, Lost):
            self._connection = f"reconnecting in {update.seconds:.1f} s: {update.reason}"
        elif isinstance(update, Ended):
            self._connection = f"ended ({update.reason}); q quits"
        else:
            self._connection = "connected"
            self._latest = update
        self._show()

    # -- what is shown -----------------------------------------------------------------------------

    def _show(self) -> None:
        if not self._paused:
            before, self._snapshot = self._snapshot, self._latest
            if before["actions"] != self._snapshot["actions"]:
                self.refresh_bindings()
        snapshot = self._snapshot
        notes = [snapshot["name"], snapshot["state"], self._connection]
        notes += ["PAUSED"] if self._paused else []
        notes += [f"only {self._filter!r}"] if self._filter else []
        self.query_one("#head", Static).update(escaped("  ".join(notes)))
        self.query_one("#counts", Static).update(escaped(counts_of(snapshot)))
        ended = throughput(snapshot)[-_DRAWN_SECONDS:]
        label = f"ended per second, {_DRAWN_SECONDS // 60} min, at most {max(ended, default=0):,}"
        self.query_one("#speed Static", Static).update(label)
        self.query_one(Sparkline).data = ended
        self._show_tabs()
        self._show_rows()

    def _show_tabs(self) -> None:
        tabs, shown = self.query_one(Tabs), shown_views(self._snapshot)
        for view in VIEWS:
            tab = tabs.query_one(f"#{view.name}", Tab)
            if (view in shown) is not tab.display:
                (tabs.show if view in shown else tabs.hide)(view.name)
            title = self._title(view)
            if tab.label_text != title:
                tab.label = title

    def _title(self, view: View) -> str:
        """Return the title of a view's tab; of some views, with the number of rows."""
        if view.name not in ("runs", "stuck", "failures", "questions"):
            return view.title
        number = sum(1 for _ in view.rows(self._snapshot))
        more = "+" if self._snapshot["left_out"].get(view.list) else ""
        return f"{view.title} {number}{more}"

    def _show_rows(self) -> None:
        rows = {
            row.key: row for row in self._view.rows(self._snapshot) if row.matches(self._filter)
        }
        widths = _widths(self._view, self.size.width)
        if widths == self._widths and list(rows) == list(self._rows):
            self._update_rows(rows, widths)
        else:
            self._replace_rows(rows, widths)
        self._rows, self._widths = rows, widths
        self._show_detail()

    def _update_rows(self, rows: dict[str, Row], widths: list[int]) -> None:
        table: DataTable[Text] = self.query_one(DataTable)
        for index, (row, before) in enumerate(zip(rows.values(), self._rows.values(), strict=True)):
            if row.cells != before.cells:
                for column, cell in enumerate(_cells(row, widths)):
                    table.update_cell_at(Coordinate(index, column), cell)

    def _replace_rows(self, rows: dict[str, Row], widths: list[int]) -> None:
        """Replace all rows; the selected one stays selected, if it is still there."""
        table: DataTable[Text] = self.query_one(DataTable)
        selected, index = self._selected(), table.cursor_row
        table.clear(columns=True)
        for column, width in zip(self._view.columns, widths, strict=True):
            table.add_column(column.title, width=width)
        for row in rows.values():
            table.add_row(*_cells(row, widths))
        if selected is not None and selected.key in rows:
            index = list(rows).index(selected.key)
        table.move_cursor(row=index)

    def _selected(self) -> Row | None:
        index = self.query_one(DataTable).cursor_row
        rows = list(self._rows.values())
        return rows[index] if 0 <= index < len(rows) else None

    def _show_detail(self) -> None:
        row = self._selected()
        more = self._snapshot["left_out"].get(self._view.list, 0)
        nothing = "nothing here" + (f" with {self._filter!r}" if self._filter else "")
        detail = nothing if row is None else row.detail
        if more:
            detail += f"\n({more:,} more are not in the list)"
        self.query_one("#about Static", Static).update(escaped(detail))

    def on_resize(self) -> None:
        """Fit the columns."""
        self._show_rows()

    def on_data_table_row_highlighted(self) -> None:
        """Show what the selected row is about."""
        self._show_detail()

    def on_data_table_row_selected(self) -> None:
        """Show all of that."""
        row = self._selected()
        if row is not None:
            self.app.push_screen(TextDialog(self._view.title, row.detail))

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show the rows of another view."""
        view = _VIEWS[event.tab.id or ""]
        if view is not self._view:
            self._view, self._rows, self._widths = view, {}, []
            self.query_one(DataTable).move_cursor(row=0)
            self._show_rows()

    # -- what keys do ------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer those actions that the page offers."""
        if action in ("cancel", "answer", "stack"):
            return action in self._snapshot["actions"]
        return True

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit(ExitStatus.OK)

    def action_next_view(self, step: int) -> None:
        """Show the next view, or the one before."""
        shown = shown_views(self._snapshot)
        at = shown.index(self._view) if self._view in shown else 0
        self.query_one(Tabs).active = shown[(at + step) % len(shown)].name

    def action_pause(self) -> None:
        """Keep the screen as it is, or go on."""
        self._paused = not self._paused
        self._show()

    def action_help(self) -> None:
        """Explain the keys."""
        self.app.push_screen(TextDialog("Keys", _HELP))

    def action_filter(self) -> None:
        """Write a filter."""
        line = self.query_one("#filter", Input)
        line.display = True
        line.focus()

    def action_end_filter(self) -> None:
        """Show all rows."""
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is written."""
        self._filter = event.value.strip()
        self._show()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(DataTable).focus()

    @work
    async def _cancel(self, run_id: int) -> None:
        found = await self._attempt(self._watch.cancel(run_id))
        if found is not None:
            self._say("cancelled" if found.value else _OVER)

    @work
    async def _show_stack(self, run_id: int) -> None:
        found = await self._attempt(self._watch.stack(run_id))
        if found is not None and found.value is not None:
            self.app.push_screen(TextDialog(f"Run {run_id}", found.value, from_end=True))
        elif found is not None:
            self._say(_OVER)

    @work
    async def _answer(self, question_id: str, value: object) -> None:
        found = await self._attempt(self._watch.answer(question_id, value))
        if found is not None:
            self._say(f"the answer: {', '.join(filter(None, found.value))}")

    # What is selected is noted at once: by the time that a request is made, rows may have moved.

    def action_cancel(self) -> None:
        """Cancel the selected run, after a question."""
        row = self._selected()
        run_id = None if row is None else row.run_id
        if row is None or run_id is None:
            self._say(_NO_RUN)
            return

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self._cancel(run_id)

        self.app.push_screen(ConfirmDialog(f"Cancel this run?\n\n{row.detail}"), answered)

    def action_stack(self) -> None:
        """Show where the selected run is."""
        row = self._selected()
        if row is None or row.run_id is None:
            self._say(_NO_RUN)
            return
        self._show_stack(row.run_id)

    def action_answer(self) -> None:
        """Answer the selected question."""
        row = self._selected()
        question_id = None if row is None else row.question_id
        if row is None or question_id is None:
            self._say("select a question first, in Questions")
            return

        def written(reply: AnswerValue | None) -> None:
            if reply is not None:
                self._answer(question_id, reply.value)

        self.app.push_screen(AnswerDialog(row.detail), written)

    async def _attempt(self, request: Awaitable[_T]) -> _Found[_T] | None:
        """Return what a request returns; if it fails, say why, and return None."""
        try:
            return _Found(await request)
        except CommandError as error:
            self._say(str(error), is_error=True)
            return None

    def _say(self, text: str, *, is_error: bool = False) -> None:
        self.notify(printable(text), severity="error" if is_error else "information", markup=False)


def _widths(view: View, width: int) -> list[int]:
    """Return the widths of its columns, which share what a screen has beyond the narrow one."""
    padding = 2
    spare = max(0, width - sum(column.width + padding for column in view.columns))
    growing = sum(column.grows for column in view.columns)
    return [column.width + column.grows * (spare // growing) for column in view.columns]


def _cells(row: Row, widths: list[int]) -> list[Text]:
    cells = [Text(printable(cell)) for cell in row.cells]
    for cell, width in zip(cells, widths, strict=True):
        cell.truncate(width, overflow="ellipsis")
    return cells
