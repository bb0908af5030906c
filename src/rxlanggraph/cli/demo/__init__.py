"""``rxlanggraph demo``: updates lost with plain asyncio, and none through the bridge.

A map; each imports only from those above it.

    workload    the messages, the graph, and both ways to run them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.option_types import whole_number
from rxlanggraph.cli.stdio import print_stderr, print_stdout

if TYPE_CHECKING:
    from rxlanggraph.cli.demo.workload import Tally

__all__ = ["demo"]


@click.command(
    epilog="Exit status: 0 if nothing was lost through the bridge, otherwise 1.",
)
@click.option(
    "--messages",
    "-n",
    "count",
    type=whole_number(1, 3376),
    metavar="N",
    default=2000,
    show_default=True,
    help="How many of the 3,376 airports; all take half a minute on a slow machine.",
)
def demo(count: int) -> int:
    """Show plain asyncio losing updates, and the bridge losing none.

    Both count the airports of each state. Each airport is a message, each state a LangGraph thread
    with a running count in its checkpoints. Offline, without a key; takes less than half a minute.
    """
    # Imported here: LangGraph is slow to import, and --help does not need it.
    from rxlanggraph.cli.demo import workload  # noqa: PLC0415

    messages = workload.airports()[:count]
    threads = len({message["state"] for message in messages})
    pause = workload.MODEL_SECONDS * 1000
    print_stdout(
        f"{len(messages):,} messages on {threads} threads. Each reads its thread's count from the\n"
        f"checkpoint, awaits {pause:.0f} ms in place of a model, and writes count + 1."
    )
    print_stdout("\nPlain asyncio: flat_map + run_coroutine_threadsafe(graph.ainvoke(...))")
    before = workload.through_asyncio(messages)
    _show(before)
    print_stdout("\nThrough the bridge: bridge.invoke(graph)")
    after = workload.through_bridge(messages)
    _show(after)
    held = after.lost == after.wrong == 0 and after.results == after.messages
    print_stdout(
        f"\nThe bridge lost {after.lost:,} updates where plain asyncio lost {before.lost:,}, in "
        f"{after.seconds / max(before.seconds, 1e-9):.2f} times its time."
    )
    if not held:
        print_stderr("the bridge has lost something: this is a defect; please report it")
    return ExitStatus.OK if held else ExitStatus.SOME_FAILED


def _show(tally: Tally) -> None:
    print_stdout(
        f"  lost updates   {tally.lost:,} of {tally.messages:,}\n"
        f"  wrong results  {tally.wrong:,} of {tally.results:,}, compared one by one with plain "
        f"Python\n"
        f"  speed          {tally.rate:,.0f} messages/s ({tally.seconds:.1f} s)"
    )
