"""Steps for metrics of runs."""

from __future__ import annotations

import ast
import gc
import math
import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.telemetry import RunMetrics, prometheus
from rxlanggraph.telemetry.prometheus import PrometheusMetrics
from support.bridge.bridges import on_loop
from support.bridge.streams import Subscriber
from support.cli.command import run_python
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, in_threads
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
    for each in context.metrics._counts._bridges:
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


def _read_by_client() -> tuple[PrometheusMetrics, CollectorRegistry]:
    registry, metrics = CollectorRegistry(), PrometheusMetrics()
    registry.register(metrics)
    return metrics, registry


def _read_by_exporter() -> tuple[RunMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    return RunMetrics(MeterProvider([reader], shutdown_on_exit=False)), registry


_READERS = {
    "OpenTelemetry's exporter for Prometheus": _read_by_exporter,
    "Prometheus's own client": _read_by_client,
}


@when("a message is answered, and one dropped, on a watched bridge whose metrics {reader} reads")
def step_a_message_is_answered_and_one_dropped_on_a_watched_bridge(
    context: Context, reader: str
) -> None:
    metrics, registry = _READERS[reader]()
    options = {"max_concurrency": 1, "max_pending": 1, "overflow": "drop_newest"}
    context.bridge = _other_bridge(context, blocked_after=LIMIT, **options)
    context.bridge.add_hooks(metrics)
    metrics.observe_loop(context.bridge)
    metrics.count_claims("work")
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


@then("the buckets of its histograms are those of the conventions, with all of the durations")
def step_the_buckets_of_its_histograms_are_those_of_the_conventions(context: Context) -> None:
    families = {family.name: family for family in text_string_to_metric_families(context.read)}
    for name in ("rxlanggraph_run_seconds", "rxlanggraph_queue_wait_seconds"):
        samples = families[name].samples
        buckets = {
            float(sample.labels["le"]): sample.value
            for sample in samples
            if sample.name == f"{name}_bucket"
        }
        assert list(buckets) == [*_BUCKETS, math.inf], buckets
        assert list(buckets.values()) == sorted(buckets.values()), buckets
        (count,) = [sample.value for sample in samples if sample.name == f"{name}_count"]
        (total,) = [sample.value for sample in samples if sample.name == f"{name}_sum"]
        assert buckets[math.inf] == count == 2, (buckets, count)
        assert 0 < total < 2 * LIMIT, total


@given("metrics of the bridge for Prometheus, where OpenTelemetry's SDK is disabled")
def step_metrics_of_the_bridge_for_prometheus(context: Context) -> None:
    patcher = mock.patch.dict(os.environ, {"OTEL_SDK_DISABLED": "true"})
    patcher.start()
    context.add_cleanup(patcher.stop)
    metrics, context.registry = _read_by_client()
    context.bridge.add_hooks(metrics)


@then("Prometheus reads as many runs as were sent, and none in flight or pending")
def step_prometheus_reads_as_many_runs_as_were_sent(context: Context) -> None:
    read = {
        family.name: [(sample.name, sample.value) for sample in family.samples]
        for family in context.registry.collect()
    }
    sent = len(context.futures) + context.refused
    assert sum(value for _, value in read["rxlanggraph_runs"]) == sent, read
    for name in ("rxlanggraph_in_flight", "rxlanggraph_pending"):
        assert {value for _, value in read[name]} == {0}, read
    began = [
        sum(value for name, value in read[family] if name.endswith("_count"))
        for family in ("rxlanggraph_run_seconds", "rxlanggraph_queue_wait_seconds")
    ]
    assert 0 < began[0] == began[1] <= sent, began


@when(
    "{here:d} messages are answered here, and {there:d} on another bridge with other metrics of "
    "the same provider"
)
def step_messages_are_answered_here_and_on_another_bridge_with_other_metrics(
    context: Context, here: int, there: int
) -> None:
    context.metrics = RunMetrics(context.measured.provider)
    step_messages_are_answered_here_and_on_another_bridge(context, here, there)


_GLOBAL = """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from rxlanggraph.telemetry import RunMetrics, prometheus

before = RunMetrics()
reader = InMemoryMetricReader()
provider = MeterProvider([reader], shutdown_on_exit=False)
set_meter_provider(provider)
for metrics in (before, RunMetrics(), RunMetrics(provider)):
    metrics.count_claims("work")
(resource,) = reader.get_metrics_data().resource_metrics
for metric in resource.scope_metrics[0].metrics:
    print(metric.name, [point.value for point in metric.data.data_points])
"""


@when("a program makes metrics, sets the global meter provider, and makes more of each kind")
def step_a_program_makes_metrics_sets_the_global_meter_provider(context: Context) -> None:
    context.ended = run_python("-c", _GLOBAL)


@then("it has read the sum of what all have counted")
def step_it_has_read_the_sum_of_what_all_have_counted(context: Context) -> None:
    assert context.ended.stdout == "rxlanggraph.claims [3]\n", context.ended


@when("metrics are made with {count:d} meter providers, which are shut down and dropped")
def step_metrics_are_made_with_meter_providers(context: Context, count: int) -> None:
    context.dropped = []
    for _ in range(count):
        provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        metrics = RunMetrics(provider)
        metrics.count_claims("work")
        context.dropped.append(weakref.ref(metrics._counts))
        provider.shutdown()
        del provider, metrics


@then("none of their counts are left")
def step_none_of_their_counts_are_left(context: Context) -> None:
    gc.collect()
    assert [each() for each in context.dropped] == [None] * len(context.dropped)


@given("metrics of the bridge with durations=False")
def step_metrics_of_the_bridge_with_durations_false(context: Context) -> None:
    context.measured = Metrics()
    context.bridge.add_hooks(RunMetrics(context.measured.provider, durations=False))


@then("there are no metrics {first} and {second}")
def step_there_are_no_metrics(context: Context, first: str, second: str) -> None:
    assert context.measured.points(first) == context.measured.points(second) == []


@when("{threads:d} threads count {count:d} claims of each of {queues:d} queues")
def step_threads_count_claims_of_each_of_queues(
    context: Context, threads: int, count: int, queues: int
) -> None:
    def work(_: int) -> None:
        for queue in range(queues):
            context.metrics.count_claims(f"queue {queue}", count)

    in_threads(threads, work)


@then("at most {most:d} queues have labels, and all {count:d} claims are counted")
def step_at_most_queues_have_labels_and_all_claims_are_counted(
    context: Context, most: int, count: int
) -> None:
    claims = context.measured.values("rxlanggraph.claims")
    assert 100 <= len(claims) <= most and claims["_OTHER"] > 0, len(claims)
    assert sum(claims.values()) == count, claims


@when("claims are counted of the queue {queue}, {count} of them")
def step_claims_are_counted_of_the_queue(context: Context, queue: str, count: str) -> None:
    values = ast.literal_eval(queue), ast.literal_eval(count)
    context.error = error_of(lambda: context.metrics.count_claims(*values))


_ODD = ("odd \ud800", 'a "quote"', "two\nlines")


@when("messages and claims are counted under names that are not Unicode, or have quotes and lines")
def step_messages_and_claims_are_counted_under_names_that_are_not_unicode(context: Context) -> None:
    metrics, registry = _read_by_client()
    context.bridge.add_hooks(metrics)
    for name in _ODD:
        _send(context, "answer", name=name)
        context.futures[-1].result(LIMIT)
        metrics.count_claims(name)
    _idle(context)
    context.read = generate_latest(registry).decode()


@when("messages are counted under two names that have one label")
def step_messages_are_counted_under_two_names_that_have_one_label(context: Context) -> None:
    metrics, registry = _read_by_client()
    context.bridge.add_hooks(metrics)
    for name in ("odd \ud800", "odd \\ud800"):
        _send(context, "answer", name=name)
        context.futures[-1].result(LIMIT)
    _idle(context)
    context.read = generate_latest(registry).decode()


@then("Prometheus reads this label once, with {count:d} runs")
def step_prometheus_reads_this_label_once_with_runs(context: Context, count: int) -> None:
    families = {family.name: family for family in text_string_to_metric_families(context.read)}
    (sample,) = families["rxlanggraph_runs"].samples
    assert (sample.labels["graph"], sample.value) == ("odd \\ud800", count), sample


@given("metrics for Prometheus in a registry of their own")
def step_metrics_for_prometheus_in_a_registry_of_their_own(context: Context) -> None:
    _, context.registry = _read_by_client()


@when("others are registered there")
def step_others_are_registered_there(context: Context) -> None:
    others = PrometheusMetrics()
    others.collect = mock.Mock(side_effect=AssertionError("asked"))
    context.error = error_of(lambda: context.registry.register(others))


@then("that is an error, which says that they are duplicates")
def step_that_is_an_error_which_says_that_they_are_duplicates(context: Context) -> None:
    assert isinstance(context.error, ValueError), context.error  # of a subclass in some versions
    assert "Duplicated timeseries" in str(context.error), context.error


@then("Prometheus reads each of these names, with what could be encoded")
def step_prometheus_reads_each_of_these_names(context: Context) -> None:
    families = {family.name: family for family in text_string_to_metric_families(context.read)}
    for family, label in (("rxlanggraph_runs", "graph"), ("rxlanggraph_claims", "queue")):
        found = [sample.labels[label] for sample in families[family].samples]
        assert found == ["odd \\ud800", 'a "quote"', "two\nlines"], found


@when("the metrics for Prometheus are imported where its client is not installed")
def step_the_metrics_for_prometheus_are_imported_where_its_client_is_not(context: Context) -> None:
    code = compile(Path(prometheus.__file__).read_text(), prometheus.__file__, "exec")
    with mock.patch.dict(sys.modules, {"prometheus_client.core": None}):
        context.error = error_of(lambda: exec(code, {"__name__": "without"}))
