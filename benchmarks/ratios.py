"""Every ratio with its target, in one table: `python -m benchmarks.ratios [--quick] [--only WORD]`.

A ratio is the median of pairs that took turns in this very run; the range beside it says how far to
trust it. Rows without a target are there to compare with.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from rxlanggraph.concurrency.interpreter import gil_enabled

from . import (
    agent,
    agent_output,
    arrivals,
    bridge,
    checkpoints,
    cleanup,
    executors,
    graph_loops,
    handoff,
    hooks,
    journal,
    lanes,
    live,
    memory,
    registry,
    state,
    state_memory,
    state_redis,
    state_sql,
    stream,
)
from .harness import Ratio, empty

_LOOPS = f"Several loops ({graph_loops.NOT_TAKEN})" if gil_enabled() else "Several loops"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: `measure` is told whether to be quick."""

    what: str
    target: float | None
    measure: Callable[[bool], Ratio | float]
    unit: str = ""


def claims(million: bool) -> dict[str, Iterator[Row]]:
    """All that is measured, by what the claims are about, in the order of the table."""
    return {
        "A stream through the bridge": _streams(),
        "Hooks, metrics and traces": _observed(),
        "Messages on threads": _threads(),
        "Worker processes": _executors(),
        _LOOPS: _graph_loops(),
        "Checkpoints that are not kept": _checkpoints(),
        "Thousands of messages in flight or waiting": _backlogs(),
        "A streamed chunk": _chunks(),
        "Handing over": _handoffs(),
        "The registry": _registries(),
        "Agents": _agents(),
        "Shared state": _state_rows(),
        "Waking an idle worker of another process": _arrivals(),
        "A run with a journal": _journals(million),
        "Memory": _memories(million),
    }


def _streams() -> Iterator[Row]:
    for peer, target in (
        ("floor", 1.03),
        ("pool", None),
        ("portal", None),
        ("plain-asyncio", None),
    ):
        yield Row(f"bridge at 16 / {peer}, 2,000 messages", target, _stream(peer, 2_000))
    for way in bridge.WAYS:
        yield Row(f"CPU time of {way} / floor", 1.1, _cpu(way))


def _observed() -> Iterator[Row]:
    for way, target in hooks.WAYS.items():
        yield Row(f"CPU time with {way} / without", target, _hooks(way))
    yield Row("CPU time with a live page, not watched / without", 1.03, _live("not watched"))
    yield Row("CPU time with a live page, watched / without", 1.03, _live("watched"))
    yield Row("the same, with nodes", None, _live("watched, with nodes"))


def _threads() -> Iterator[Row]:
    for way in lanes.WAYS:
        name = f"CPU time on 1,000 threads / on none, {way}"
        yield Row(name, 1.05 if way == "bridge, lanes alone" else None, _lanes(way))
    for crowd in lanes.CROWDS:
        yield Row(f"wait of 99 behind 10,000 of {crowd} / alone", None, _lane_waits(crowd))
    for backend in lanes.BACKENDS:
        for spread in lanes.SPREADS:
            name = f"CPU time with lanes, {backend}, {spread} / without"
            yield Row(name, None, _shared_lanes(backend, spread))


def _checkpoints() -> Iterator[Row]:
    for saver in checkpoints.SAVERS:
        yield Row(f"CPU time with keep_checkpoints=1, {saver} / without", None, _kept(saver))


def _backlogs() -> Iterator[Row]:
    yield Row("bridge at 16 / plain-asyncio, 3,000 in flight", 0.4, _stream("plain-asyncio", 3_000))
    yield Row("backlog of 100,000 (quick: 20,000) / 1,000, graph", 1.1, _backlog)
    yield Row("backlog of 100,000 / of 1,000, empty", 1.1, _empty_backlog)


def _chunks() -> Iterator[Row]:
    for way in stream.WAYS:
        yield Row(f"chunk through stream / astream, {way}", 1.15, _chunk(way))


def _handoffs() -> Iterator[Row]:
    for threads in (1, 4):
        for peer, target in (
            ("plain-asyncio", 0.5),
            ("portal", 0.125),
            ("bare-fix", None),
            ("pool", None),
        ):
            name = f"hand-off / {peer}, {threads} thread{'s' * (threads > 1)}"
            yield Row(name, target, _handoff(peer, threads))


def _registries() -> Iterator[Row]:
    for entries in (10, 1_000, 100_000, 1_000_000):
        target = 1.3 if entries in (10, 1_000_000) else None
        yield Row(f"registry life / bare fix, {entries:,} entries", target, _life(entries))
    yield Row("snapshot of 100,000: lock held", 5.0, lambda _: registry.snapshot_hold() * 1e3, "ms")
    yield Row("create 2,000 runs / bare fix", None, lambda _: cleanup.ratio("create"))
    yield Row("clean 2,000 runs up / bare fix", None, lambda _: cleanup.ratio("clean_up"))


def _agents() -> Iterator[Row]:
    for peer, target in (("list-and-lock", 4.0), ("asyncio-lock", None)):
        for writers in (1, 8):
            name = f"message into memory / {peer}, {writers} at once"
            yield Row(name, target, _memory(peer, writers))
    yield Row("transition of an agent's state / floor", None, _states)
    for way in agent_output.WAYS:
        for peer in ("asyncio", "janus", "culsans"):
            yield Row(f"output, {way} / {peer}", None, _output(way, peer))
    for consumers, loops in agent_output.CROWDS:
        for peer in ("ours", *agent_output.peers_for(loops)):
            name = f"output of {consumers} on {loops}: largest / smallest, {peer}"
            yield Row(name, 1.05 if peer == "ours" else None, _fairness(peer, consumers, loops))


def _state_rows() -> Iterator[Row]:
    for backend in state.BACKENDS:
        for at_once in state.CONTENDING:
            name = f"safe_update / floor, {backend}, {at_once} at once"
            yield Row(name, 1.5, _updates(backend, at_once))
    for part in ("increments", "claims"):
        for at_once in (1, 16):
            name = f"redis {part} / bare commands, {at_once} at once"
            yield Row(name, 1.5, _redis(part, at_once))
            yield Row(f"memory {part} / a lock, {at_once} at once", None, _in_memory(part, at_once))
            for database in state_sql.DATABASES:
                for peer in state_sql.PEERS[part]:
                    name = f"{database} {part} / bare {peer}, {at_once} at once"
                    yield Row(name, 1.5, _sql(database, part, peer, at_once))


def _arrivals() -> Iterator[Row]:
    for backend in arrivals.BACKENDS:
        yield Row(f"add to claim when idle, {backend}: woken / polled", 0.25, _woken(backend))


def _journals(million: bool) -> Iterator[Row]:
    for backend, target in journal.BACKENDS.items():
        yield Row(
            f"trivial function with a journal, {backend} / without", target, _journal(backend)
        )
        yield Row(f"20 ms, -j 64, with a journal, {backend} / without", 1.05, _slow(backend))
    lines = 1_000_000 if million else 100_000
    name = f"peak memory with a journal, {lines:,} lines / a tenth"
    yield Row(name, 1.2, lambda _: journal.memory_ratio(lines))


def _memories(million: bool) -> Iterator[Row]:
    for peer in ("bridge", "bare-fix"):
        yield Row(f"a run in flight, {peer}", None, _in_flight(peer), "bytes")
    messages = 1_000_000 if million else 100_000
    name = f"left by {messages:,} messages, of each 1,000"
    yield Row(name, 1.0, lambda _: memory.growth(messages).blocks_per_thousand, "blocks")


def _stream(peer: str, messages: int) -> Callable[[bool], Ratio]:
    return lambda quick: bridge.stream_ratio(peer, messages=messages, pairs=5 if quick else 15)


def _cpu(way: str) -> Callable[[bool], Ratio]:
    return lambda quick: bridge.cpu_ratio(way, pairs=3 if quick else 7)


def _live(way: str) -> Callable[[bool], Ratio]:
    return lambda quick: live.cpu_ratio(way, pairs=3 if quick else 7)


def _hooks(way: str) -> Callable[[bool], Ratio]:
    return lambda quick: hooks.cpu_ratio(way, pairs=3 if quick else 7)


def _executors() -> Iterator[Row]:
    for graph, way in product(executors.GRAPHS, executors.WAYS):
        yield Row(f"{graph} graph, one process / {way}", None, _scaling(graph, way))


def _graph_loops() -> Iterator[Row]:
    if not gil_enabled():
        for graph in graph_loops.GRAPHS:
            yield Row(f"{graph} graph, one loop / {graph_loops.LOOPS}", None, _loops(graph))


def _loops(graph: str) -> Callable[[bool], Ratio]:
    return lambda quick: graph_loops.rate_ratio(graph, pairs=3 if quick else 7)


def _scaling(graph: str, way: str) -> Callable[[bool], Ratio]:
    return lambda quick: executors.rate_ratio(graph, way, pairs=3 if quick else 7)


def _lanes(way: str) -> Callable[[bool], Ratio]:
    return lambda quick: lanes.cpu_ratio(way, pairs=3 if quick else 5)


def _lane_waits(crowd: str) -> Callable[[bool], Ratio]:
    return lambda quick: lanes.fairness_ratio(crowd, pairs=5 if quick else 11)


def _shared_lanes(backend: str, spread: str) -> Callable[[bool], Ratio]:
    return lambda quick: lanes.shared_ratio(backend, spread, pairs=3 if quick else 7)


def _kept(saver: str) -> Callable[[bool], Ratio]:
    return lambda quick: checkpoints.ratio(saver, pairs=3 if quick else 7)


def _chunk(way: str) -> Callable[[bool], Ratio]:
    return lambda quick: stream.ratio(way, pairs=7 if quick else 21)


def _backlog(quick: bool) -> Ratio:
    return bridge.backlog_ratio(20_000 if quick else 100_000, pairs=1 if quick else 5)


def _empty_backlog(quick: bool) -> Ratio:
    return bridge.backlog_ratio(pairs=3 if quick else 9, target=empty)


def _handoff(peer: str, threads: int) -> Callable[[bool], Ratio]:
    return lambda quick: handoff.ratio(peer, threads, pairs=7 if quick else 21)


def _life(entries: int) -> Callable[[bool], Ratio]:
    return lambda quick: registry.life_ratio(entries, pairs=11 if quick else 31)


def _memory(peer: str, writers: int) -> Callable[[bool], Ratio]:
    return lambda quick: agent.memory_ratio(peer, writers, pairs=7 if quick else 21)


def _states(quick: bool) -> Ratio:
    return agent.state_ratio(pairs=7 if quick else 21)


def _output(way: str, peer: str) -> Callable[[bool], Ratio]:
    return lambda quick: agent_output.ratio(way, peer, pairs=5 if quick else 15)


def _fairness(peer: str, consumers: int, loops: int) -> Callable[[bool], float]:
    return lambda _: agent_output.unfairness(peer, consumers, loops)


def _updates(backend: str, at_once: int) -> Callable[[bool], Ratio]:
    return lambda quick: state.ratio(backend, at_once, pairs=5 if quick else 21)


def _in_memory(part: str, at_once: int) -> Callable[[bool], Ratio]:
    return lambda quick: state_memory.ratio(part, at_once, pairs=7 if quick else 21)


def _redis(part: str, at_once: int) -> Callable[[bool], Ratio]:
    return lambda quick: state_redis.ratio(part, "two steps", at_once, pairs=7 if quick else 21)


def _sql(database: str, part: str, peer: str, at_once: int) -> Callable[[bool], Ratio]:
    return lambda quick: state_sql.ratio(
        database, part, at_once, peer=peer, pairs=7 if quick else 21
    )


def _woken(backend: str) -> Callable[[bool], Ratio]:
    return lambda quick: arrivals.ratio(backend, pairs=7 if quick else 21)


def _journal(backend: str) -> Callable[[bool], Ratio]:
    return lambda quick: journal.ratio(
        backend, lines=10_000 if quick else 50_000, pairs=3 if quick else 5
    )


def _slow(backend: str) -> Callable[[bool], Ratio]:
    return lambda quick: journal.slow_ratio(
        backend, lines=6_400 if quick else 20_000, pairs=3 if quick else 5
    )


def _in_flight(peer: str) -> Callable[[bool], float]:
    return lambda _: memory.bytes_in_flight(peer)


def line(row: Row, result: Ratio | float) -> str:
    """Return the line of one row."""
    value = _value(result)
    detail = ""
    if isinstance(result, Ratio):
        detail = (
            f"{result.low:.2f} to {result.high:.2f}, "
            f"{result.ours * 1e6:.1f} / {result.peer * 1e6:.1f} us"
        )
    verdict = "" if row.target is None else "MISSED" if value > row.target else "met"
    target = "" if row.target is None else f"<= {row.target:g}"
    figure = f"{value:,.3f} {row.unit}".strip()
    return f"{row.what:<60} {figure:>14} {target:>9}  {verdict:<7} {detail}".rstrip()


def _value(result: Ratio | float) -> float:
    return result.value if isinstance(result, Ratio) else result


def _figure(claim: str, row: Row, result: Ratio | float) -> dict[str, Any]:
    """Return one row as it is plotted."""
    value = _value(result)
    low, high = (result.low, result.high) if isinstance(result, Ratio) else (value, value)
    numbers = {"target": row.target, "value": value, "low": low, "high": high}
    rounded = {key: number and float(f"{number:.4g}") for key, number in numbers.items()}
    return {"claim": claim, "what": row.what, **rounded, "unit": row.unit}


def _this_run(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a figure depends on: the machine, without its name; Python; how thorough."""
    from asv.machine import Machine

    known = Machine.get_defaults()
    machine = {key: known[key] for key in ("cpu", "num_cpu", "arch", "ram")}
    machine["os"] = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"machine": machine, "python": python, "quick": options.quick}


def _as_json(run: dict[str, Any], figures: list[dict[str, Any]]) -> str:
    """Return the run and its figures, with a line for each figure."""
    lines = ",\n".join(map(json.dumps, figures))
    return f'{json.dumps(run)[:-1]}, "figures": [\n{lines}\n]}}\n'


def main(arguments: list[str] | None = None) -> int:
    """Print the table as it is measured; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer pairs and shorter backlogs")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name contains WORD")
    parser.add_argument("--million", action="store_true", help="a million messages for memory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the run for the plots")
    options = parser.parse_args(arguments)
    print(f"{platform.python_implementation()} {platform.python_version()}, medians of pairs")
    print(f"{'what':<60} {'ratio':>14} {'target':>9}  {'verdict':<7} range, per item")
    figures, missed = [], 0
    for claim, rows in claims(options.million).items():
        for row in rows:
            if options.only in row.what:
                result = row.measure(options.quick)
                print(line(row, result), flush=True)
                figures.append(_figure(claim, row, result))
                missed += row.target is not None and _value(result) > row.target
                if options.json is not None:  # each time: what is measured is not lost
                    options.json.write_text(_as_json(_this_run(options), figures))
    print(f"{missed} target{'' if missed == 1 else 's'} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
