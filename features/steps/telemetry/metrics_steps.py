"""Steps for metrics of runs."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.telemetry import RunMetrics
from support.bridge.bridges import on_loop
from support.bridge.streams import Subscriber
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT
from support.telemetry.metrics import Metrics

# Seconds: those that the conventions recommend for GenAI operations.
_BUCKETS = [0.01 * 2**power for power in range(14)]


@given("metrics of the bridge")
def step_metrics_of_the_bridge(context: Context) -> None:
    context.measured = Metrics()
    context.metrics = RunMetrics(context.measured.provider)
    context.bridge.add_hooks(context.metrics)


def _other_bridge(context: Context, **options: Any) -> RxPyLangGraphBridge:
    other = RxPyLangGraphBridge(**options)
    context.add_cleanup(other.close)
    return other


@given("metrics of the bridge, another bridge, and their loops")
def step_metrics_of_the_bridge_another_bridge_and_their_loops(context: Context) -> None:
    step_metrics_of_the_bridge(context)
    other = _other_bridge(context, blocked_after=0.05)
    context.metrics.observe_loop(other)
    context.metrics.observe_loop(context.bridge)
    context.metrics.observe_loop(context.bridge)
    other.create_future_task(context.work.answer, {"value": 0}).result(LIMIT)


def _idle(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)


def _send(context: Context, function: str, count: int = 1, **options: Any) -> None:
    options = {"errors": "emit", **options}
    for value in range(count):
        work = getattr(context.work, function)
        context.futures.append(context.bridge.create_future_task(work, {"value": value}, **options))


@when("{count:d} messages are answered, 1 fails and 1 times out")
def step_messages_are_answered_1_fails_and_1_times_out(context: Context, count: int) -> None:
    for _ in range(count):
        _send(context, "answer")
        context.futures[-1].result(LIMIT)
    _send(context, "fail")
    context.futures[-1].result(LIMIT)
    _send(context, "wait", timeout=0.01)
    assert context.futures[-1].result(LIMIT).status == "timed_out"
    _idle(context)


@then("the metrics are")
def step_the_metrics_are(context: Context) -> None:
    for row in context.table:
        wanted = {label: int(row[label]) for label in context.table.headings[1:]}
        assert context.measured.values(row["name"]) == wanted, (
            row["name"],
            context.measured.values(row["name"]),
        )


@then("the durations have the buckets of the conventions")
def step_the_durations_have_the_buckets_of_the_conventions(context: Context) -> None:
    for name in ("rxlanggraph.run", "rxlanggraph.queue_wait"):
        for point in context.measured.points(name):
            assert list(point.explicit_bounds) == _BUCKETS, point.explicit_bounds
    (timed_out,) = [
        point
        for point in context.measured.points("rxlanggraph.run")
        if point.attributes["status"] == "timed_out"
    ]
    assert 0.01 <= timed_out.sum < LIMIT, timed_out


def _one_at_work(context: Context) -> None:
    _send(context, "wait")
    context.work.began.wait_for(1)
    on_loop(context)


@when("1 message runs, 2 wait and 2 more come")
def step_1_message_runs_2_wait_and_2_more_come(context: Context) -> None:
    _one_at_work(context)
    _send(context, "wait", 4)


@when("the gate opens, and all have ended")
def step_the_gate_opens_and_all_have_ended(context: Context) -> None:
    context.work.release()
    _idle(context)


@when("the result of a message that was dropped passes through a second stage")
def step_the_result_of_a_message_that_was_dropped_passes_through(context: Context) -> None:
    other = _other_bridge(context, max_concurrency=1, max_pending=1, overflow="drop_newest")
    other.create_future_task(context.work.wait, {"value": 0})
    context.work.began.wait_for(1)
    other.create_future_task(context.work.wait, {"value": 1})
    other.add_hooks(context.metrics)
    subscriber = Subscriber()
    stages = rx.of({"value": 2}).pipe(
        other.invoke(context.work.wait, errors="emit"),
        context.bridge.invoke(context.work.answer, errors="emit", name="second"),
    )
    subscriber.subscribe(stages)
    (result,) = subscriber.wait_for_end().items
    assert result.status == "rejected", result
    context.work.release()
    assert other.registry.wait_idle(LIMIT)
    _idle(context)


@then("no message is in flight or pending")
def step_no_message_is_in_flight_or_pending(context: Context) -> None:
    for name in ("rxlanggraph.in_flight", "rxlanggraph.pending"):
        values = context.measured.values(name)
        assert len(values) > 2 and set(values.values()) == {0}, values


@then("as many messages were counted as were sent")
def step_as_many_messages_were_counted_as_were_sent(context: Context) -> None:
    sent = len(context.futures) + context.refused
    counted = context.measured.total("rxlanggraph.runs")
    assert counted == sent, (counted, sent)
    began = context.measured.total("rxlanggraph.run")
    waits = context.measured.total("rxlanggraph.queue_wait")
    assert began == waits <= sent, (began, waits, sent)


@when("{count:d} messages are answered, each under a name of its own")
def step_messages_are_answered_each_under_a_name_of_its_own(context: Context, count: int) -> None:
    for number in range(count):
        _send(context, "answer", name=f"user {number}")
        context.futures[-1].result(LIMIT)
    _idle(context)


@then("at most {most:d} graphs have labels, and all {count:d} runs are counted")
def step_at_most_graphs_have_labels_and_all_runs_are_counted(
    context: Context, most: int, count: int
) -> None:
    runs = context.measured.values("rxlanggraph.runs")
    assert len(runs) <= most and runs["_OTHER ok"] == count - most + 1, len(runs)
    assert context.measured.total("rxlanggraph.runs") == count


@when("{here:d} messages are answered here, and {there:d} on another bridge with the same metrics")
def step_messages_are_answered_here_and_on_another_bridge(
    context: Context, here: int, there: int
) -> None:
    other = _other_bridge(context)
    other.add_hooks(context.metrics)
    for bridge, count in ((context.bridge, here), (other, there)):
        for value in range(count):
            bridge.create_future_task(context.work.answer, {"value": value}).result(LIMIT)
        assert bridge.registry.wait_idle(LIMIT)


@then("the lag of the loop was in the metrics, and is not once the bridges are closed")
def step_the_lag_of_the_loop_was_in_the_metrics(context: Context) -> None:
    (lag,) = context.measured.values("rxlanggraph.loop_lag").values()
    assert lag >= (context.bridge.loop_lag or LIMIT) > 0, lag
    assert max(context.lags) > 0.05, context.lags
    context.bridge.close()
    for each in context.metrics._bridges:
        each().close()
    assert context.measured.values("rxlanggraph.loop_lag") == {}


@when("the loop of a registry is observed")
def step_the_loop_of_a_registry_is_observed(context: Context) -> None:
    context.error = error_of(lambda: context.metrics.observe_loop(context.bridge.registry))


@when("{count:d} bridges whose loops are observed are closed and dropped")
def step_bridges_whose_loops_are_observed_are_closed_and_dropped(
    context: Context, count: int
) -> None:
    context.dropped = []
    for _ in range(count):
        bridge = RxPyLangGraphBridge(blocked_after=1.0)
        bridge.add_hooks(context.metrics)
        context.metrics.observe_loop(bridge)
        bridge.create_future_task(context.work.answer, {"value": 0}).result(LIMIT)
        bridge.close()
        context.dropped.append(weakref.ref(bridge))
        del bridge


@then("none of them is left")
def step_none_of_them_is_left(context: Context) -> None:
    gc.collect()
    assert [each() for each in context.dropped] == [None] * len(context.dropped)
    assert context.measured.values("rxlanggraph.loop_lag") == {}


@when("a message is answered, and one dropped, on a watched bridge whose metrics Prometheus reads")
def step_a_message_is_answered_and_one_dropped_on_a_watched_bridge(context: Context) -> None:
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    metrics = RunMetrics(MeterProvider([reader], shutdown_on_exit=False))
    options = {"max_concurrency": 1, "max_pending": 1, "overflow": "drop_newest"}
    context.bridge = _other_bridge(context, blocked_after=LIMIT, **options)
    context.bridge.add_hooks(metrics)
    metrics.observe_loop(context.bridge)
    _one_at_work(context)
    _send(context, "wait", 2)
    give_up = time.monotonic() + LIMIT
    while context.bridge.loop_lag is None:  # the watch measures it while there is work
        assert time.monotonic() < give_up, "no lag was measured"
        on_loop(context)
    context.work.release()
    _idle(context)
    context.read = generate_latest(registry).decode()


@then("it reads these lines, whatever their values")
def step_it_reads_these_lines_whatever_their_values(context: Context) -> None:
    read = {line.rpartition(" ")[0] for line in context.read.splitlines() if line[0] != "#"}
    wanted = set(context.text.splitlines())
    assert wanted <= read, wanted - read
    others = {
        line for line in read - wanted if not line.partition("{")[0].endswith(("_bucket", "_sum"))
    }
    assert others == set(), others
