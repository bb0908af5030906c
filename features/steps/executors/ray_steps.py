from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from unittest import mock

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from rxlanggraph.executors import RayExecutor, pool
from rxlanggraph.executors.ray import connection
from support.bridge.bridges import expire
from support.cli.command import ROOT
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.executors import graphs
from support.executors.nodes import Node, free_port
from support.executors.world import LIMIT, begin, open_bridge, ray_executor, send
from support.servers import postgres_server

PROCESS = ROOT / "features" / "support" / "executors" / "process.py"


@given("calls are kept back for a worker that starts late")
def step_calls_are_kept_back_for_a_worker_that_starts_late(context: Context) -> None:
    patch(context, pool, "_KEPT_BACK", LIMIT)  # which one may be, on a busy machine


@given("both workers have started")
def step_both_workers_have_started(context: Context) -> None:
    pids: set[int] = set()
    give_up = monotonic() + LIMIT
    while len(pids) < 2:  # the one that starts first answers what its share allows
        assert monotonic() < give_up, pids
        runs = [context.bridge.create_future_task(context.graph, {"n": 0}) for _ in range(2)]
        pids |= {run.result(LIMIT).content["pid"] for run in runs}


@then("they come from {count:d} processes, and none from this one")
def step_they_come_from_processes_and_none_from_this_one(context: Context, count: int) -> None:
    pids = {result.content["pid"] for result in context.results}
    assert len(pids) == count and os.getpid() not in pids, pids


@then("the result comes from another process")
def step_the_result_comes_from_another_process(context: Context) -> None:
    assert context.error is None, context.error
    assert context.result.content["n"] == 2 and context.result.content["pid"] != os.getpid()


@when("it is sent a message on a thread")
def step_it_is_sent_a_message_on_a_thread(context: Context) -> None:
    message = StreamMessage({"n": 21}, "a-thread")
    context.result = context.bridge.create_future_task(context.graph, message).result(LIMIT)


@then("the function was called in another process, with the message")
def step_the_function_was_called_in_another_process_with_the(context: Context) -> None:
    content = context.result.content
    assert content["twice"] == 42 and content["thread_id"] == "a-thread"
    assert content["pid"] != os.getpid()


@when("a message is sent with a context, a config, metadata and a context variable")
def step_a_message_is_sent_with_a_context_a_config_metadata(context: Context) -> None:
    graphs.tenant.set("acme")
    run = context.bridge.create_future_task(
        context.graph,
        StreamMessage({"n": 1}, metadata={"batch": 7}),
        context={"user": "ann"},
        config={"configurable": {"colour": "green"}},
    )
    context.result = run.result(LIMIT)


@then("the node has seen all of them")
def step_the_node_has_seen_all_of_them(context: Context) -> None:
    seen = dict(context.result.content["seen"])
    seen.pop("thread")
    assert seen == {
        "tenant": "acme",
        "context": {"user": "ann"},
        "configurable": "green",
        "metadata": 7,
    }


@then("its traceback in the worker is the innermost cause")
def step_its_traceback_in_the_worker_is_the_innermost_cause(context: Context) -> None:
    error = context.error
    while error.__cause__ is not None:
        error = error.__cause__
    assert type(error).__name__ == "RemoteTracebackError"
    assert "in fail" in str(error) and "graphs.py" in str(error), error


# -- what cannot be sent ---------------------------------------------------------------------------

UNSENDABLE: dict[str, Any] = {
    "a lock as content": ({"n": 1, "seen": threading.Lock()}, None),
    "a callback in its config": ({"n": 1}, {"callbacks": [threading.Lock()]}),
}


@when("a message is sent with {what}, and another one without")
def step_a_message_is_sent_with_and_another_one_without(context: Context, what: str) -> None:
    if what == "a result with a lock":
        open_bridge(
            context, ray_executor("support.executors.graphs:returning", workers=1), graphs.returning
        )
        content, config = {"n": 0}, None
    else:
        content, config = UNSENDABLE[what]
    runs = [
        context.bridge.create_future_task(context.graph, content, config=config),
        context.bridge.create_future_task(context.graph, {"n": 1}),
    ]
    context.error, context.other = (error_of(partial(run.result, LIMIT)) for run in runs)


@then("the other one has its result")
def step_the_other_one_has_its_result(context: Context) -> None:
    assert context.other is None, context.other


# -- threads ---------------------------------------------------------------------------------------


@given("a bridge for a graph with threads in a file, with {workers:d} workers of Ray")
def step_a_bridge_for_a_graph_with_threads_in_a_file(context: Context, workers: int) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    context.make = graphs.counting_in(str(Path(folder.name, "threads.db")))
    open_bridge(context, ray_executor(context.make, workers=workers), None)


@when("{count:d} words on each of {threads:d} threads go through the bridge")
def step_words_on_each_of_threads_go_through_the_bridge(
    context: Context, count: int, threads: int
) -> None:
    async def main() -> None:
        async with context.make() as graph:
            messages = [
                StreamMessage({"word": f"{n}"}, f"thread-{thread}")
                for n in range(count)
                for thread in range(threads)
            ]
            source = rx.from_iterable(messages)
            invoke = context.bridge.invoke(graph)
            results = source.pipe(invoke, ops.to_list()).run
            context.results = await asyncio.to_thread(results)
            context.bridge.close()

    asyncio.run(main())
    context.count, context.threads = count, threads


@then("each thread has its words in order, and has counted them")
def step_each_thread_has_its_words_in_order_and_has_counted(context: Context) -> None:
    latest = {result.thread_id: result.content for result in context.results}
    assert len(latest) == context.threads
    for content in latest.values():
        assert content["done"] == [f"{n}" for n in range(context.count)], content
        assert content["count"] == context.count


@when("a message is sent with a timeout, which is over once its call has begun")
def step_a_message_is_sent_with_a_timeout(context: Context) -> None:
    content = {"n": 0, "port": context.meeting.port}
    warm = context.bridge.create_future_task(context.graph, content)  # the worker has started
    context.meeting.wait_for(1)[0].tell()
    warm.result(LIMIT)
    run = context.bridge.create_future_task(context.graph, content, timeout=LIMIT)
    (guest,) = context.meeting.wait_for(1)
    expire(run)
    context.error = error_of(partial(run.result, LIMIT))
    context.chosen = run, guest


# -- kills -----------------------------------------------------------------------------------------


@when("{count:d} messages are sent and begin, and one worker is killed")
def step_messages_are_sent_and_begin_and_one_worker_is_killed(context: Context, count: int) -> None:
    send(context, count)
    begin(context, count)
    victim = context.guests[0].pid
    context.lost = [n for n, guest in context.guests.items() if guest.pid == victim]
    os.kill(victim, signal.SIGKILL)


@given(
    "a bridge for a graph with threads in PostgreSQL, with {workers:d} workers of Ray, and "
    "{retries:d} retries"
)
def step_a_bridge_for_a_graph_with_threads_in_postgresql(
    context: Context, workers: int, retries: int
) -> None:
    url = postgres_server.fresh_url()
    context.make = graphs.threads_in_postgres(url)

    async def set_up() -> None:
        async with context.make() as graph:
            await graph.checkpointer.setup()

    asyncio.run(set_up())
    open_bridge(context, ray_executor(context.make, workers=workers, retries=retries), None)


@when("a message has been counted, and its worker is killed in the next node")
def step_a_message_has_been_counted_and_its_worker_is_killed(context: Context) -> None:
    async def main() -> None:
        async with context.make() as graph:
            message = StreamMessage({"word": "one", "port": context.meeting.port}, "a-thread")
            run = context.bridge.create_future_task(graph, message, durability="sync")
            (first,) = await asyncio.to_thread(context.meeting.wait_for, 1)
            os.kill(first.pid, signal.SIGKILL)
            (second,) = await asyncio.to_thread(context.meeting.wait_for, 1)
            assert second.pid != first.pid
            second.tell()
            context.result = await run

    asyncio.run(main())


@then("it is answered, and was counted once")
def step_it_is_answered_and_was_counted_once(context: Context) -> None:
    content = context.result.content
    assert content["count"] == 1 and content["done"] == ["one", "died"], content


# -- refusals --------------------------------------------------------------------------------------

graphs_here = {"plain": graphs.plain}
BUILDER = graphs.plain.builder
ARGUMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    # In modules of steps, which workers cannot import.
    "a factory with a graph": (lambda: graphs_here["plain"], {}),
    "a factory with a builder": (partial(BUILDER.compile), {}),
    "a compiled graph": (graphs.plain, {}),
    "a function of the content": (lambda content: content, {}),
    "a name without a module": ("graph", {}),
    "a name in __main__": ("__main__:graph", {}),
    "no workers": ("a.b:c", {"workers": 0}),
    "an address of Ray Client": ("a.b:c", {"address": "ray://somewhere:10001"}),
    "an address of no text": ("a.b:c", {"address": 6379}),
    "fewer CPUs than none": ("a.b:c", {"num_cpus": -1}),
    "CPUs without end": ("a.b:c", {"num_cpus": math.inf}),
    "a dashboard in words": ("a.b:c", {"dashboard": "no"}),
    "loopback as a number": ("a.b:c", {"loopback": 0}),
    "one variable as a text": ("a.b:c", {"context_vars": "support.executors.graphs:tenant"}),
    "an environment as a text": ("a.b:c", {"runtime_env": "pip"}),
}


@when("a RayExecutor is made with {what}")
def step_a_rayexecutor_is_made_with(context: Context, what: str) -> None:
    target, options = ARGUMENTS[what]
    context.error = error_of(lambda: RayExecutor(target, **options))


@given(
    "a bridge with {workers:d} workers of Ray, for a factory that notes when its graph is closed"
)
def step_a_bridge_with_workers_of_ray_for_a_factory_that_notes(
    context: Context, workers: int
) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    context.folder = Path(folder.name)
    factory = graphs.plain_noted_in(folder.name)
    open_bridge(context, ray_executor(factory, workers=workers), graphs.plain)


@then("{count:d} graphs have been closed")
def step_graphs_have_been_closed(context: Context, count: int) -> None:
    assert len(list(context.folder.iterdir())) == count


@given("a bridge with {workers:d} workers of Ray, for a factory that leaves")
def step_a_bridge_with_workers_of_ray_for_a_factory_that_leaves(
    context: Context, workers: int
) -> None:
    open_bridge(context, ray_executor(graphs.leaving_factory, workers=workers), graphs.plain)


@given("a bridge with {workers:d} workers of Ray, for a factory that fails")
def step_a_bridge_with_workers_of_ray_for_a_factory_that_fails(
    context: Context, workers: int
) -> None:
    open_bridge(context, ray_executor(graphs.failing_factory, workers=workers), graphs.plain)


# -- processes -------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Without Python's warnings of processes of Ray, which gives each of them a second to end."""
    warnings = f"{os.environ.get('PYTHONWARNINGS', 'default')},ignore:subprocess:ResourceWarning"
    return {**os.environ, "PYTHONPATH": str(ROOT / "features"), "PYTHONWARNINGS": warnings}


def run_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, PROCESS, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@when("a process has a message answered by the cluster of this one")
def step_a_process_has_a_message_answered_by_the_cluster_of(context: Context) -> None:
    import ray

    context.told = run_process("join", ray.get_runtime_context().gcs_address)


@then("it was answered by a worker")
def step_it_was_answered_by_a_worker(context: Context) -> None:
    assert context.told == {"n": 2, "elsewhere": True}, context.told


@then("this process can still use its cluster")
def step_this_process_can_still_use_its_cluster(context: Context) -> None:
    open_bridge(context, ray_executor("support.executors.graphs:plain", workers=1), graphs.plain)
    run = context.bridge.create_future_task(context.graph, {"n": 1})
    assert run.result(LIMIT).content["n"] == 2


@when("a cluster is joined at {host}")
def step_a_cluster_is_joined_at(context: Context, host: str) -> None:
    context.shown = []
    with (
        mock.patch.object(connection, "_show_token", context.shown.append),
        mock.patch.object(connection, "_refusal", lambda *_: None),
    ):
        connection._join(mock.Mock(), f"{host}:6379")


@then("the token of this machine was shown to it: {it_is}")
def step_the_token_of_this_machine_was_shown_to_it(context: Context, it_is: str) -> None:
    assert bool(context.shown) == (it_is == "yes"), context.shown


@when("a process sends a message to a cluster that is not there")
def step_a_process_sends_a_message_to_a_cluster_that_is_not(context: Context) -> None:
    context.told = run_process("unreachable")


@then('it has ExecutorUnavailableError within {seconds:g} seconds, which says "{words}"')
def step_it_has_executorunavailableerror_within_seconds_which_says(
    context: Context, seconds: float, words: str
) -> None:
    assert context.told["error"] == "ExecutorUnavailableError", context.told
    assert words in context.told["says"], context.told
    assert context.told["seconds"] < seconds, context.told


@when("a process has a message answered by a cluster of its own")
def step_a_process_has_a_message_answered_by_a_cluster_of_its(context: Context) -> None:
    context.told = run_process("own")


@then("while it ran, nothing listened on other interfaces")
def step_while_it_ran_nothing_listened_on_other_interfaces(context: Context) -> None:
    assert context.told["n"] == 2
    assert context.told["listening"] and not context.told["elsewhere"], context.told


@then("it handled SIGTERM itself, and nothing was printed")
def step_it_handled_sigterm_itself_and_nothing_was_printed(context: Context) -> None:
    assert context.told["signals"] == ["SIGTERM"], context.told  # what is printed is an error


@then("its cluster has ended with it, and its files are gone")
def step_its_cluster_has_ended_with_it_and_its_files_are(context: Context) -> None:
    assert not Path(context.told["folder"]).exists()
    wait_for_end(context.told["pids"], 60)


@when("a process that has workers is killed")
def step_a_process_that_has_workers_is_killed(context: Context) -> None:
    with subprocess.Popen(
        [sys.executable, PROCESS, "wait"], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        context.pids = told["pids"]
        context.add_cleanup(shutil.rmtree, told["folder"], ignore_errors=True)
        process.kill()


@then("none of them is left after {seconds:d} seconds")
def step_none_of_them_is_left_after_seconds(context: Context, seconds: int) -> None:
    assert len(context.pids) > 3, context.pids
    wait_for_end(context.pids, seconds)


def wait_for_end(pids: list[int], seconds: float = LIMIT) -> None:
    """Wait until none of these processes is there, which are nobody's children here."""
    until = monotonic() + seconds
    pause = threading.Event()
    while left := [pid for pid in pids if is_alive(pid)]:
        assert monotonic() < until, [Path(f"/proc/{pid}/cmdline").read_text() for pid in left]
        pause.wait(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@then("nothing of {error:w} is among its causes")
def step_nothing_of_is_among_its_causes(context: Context, error: str) -> None:
    each, names = context.error, []
    while each is not None:
        names.append(type(each).__name__)
        each = each.__cause__ or each.__context__
    assert error not in names, names


# -- as it would be without this package ---------------------------------------------------------


@when("Ray's pickle takes a compiled graph as it is")
def step_rays_pickle_takes_a_compiled_graph_as_it_is(context: Context) -> None:
    from ray import cloudpickle

    graph = cloudpickle.loads(cloudpickle.dumps(graphs.plain))
    context.error = error_of(lambda: asyncio.run(graph.ainvoke({"n": 1})))


@then("it can be called as before")
def step_it_can_be_called_as_before(context: Context) -> None:
    assert context.error is None, repr(context.error)


# -- forks -----------------------------------------------------------------------------------------


@when("a process with workers forks, and the child uses its bridge, then a new one")
def step_a_process_with_workers_forks_and_the_child_uses_its_bridge(context: Context) -> None:
    context.told = run_process("forking")


@then("both raise WrongProcessError in the child at once")
def step_both_raise_wrongprocesserror_in_the_child_at_once(context: Context) -> None:
    assert context.told["errors"] == ["WrongProcessError", "WrongProcessError"], context.told
    assert context.told["seconds"] < LIMIT / 5, context.told


@then("the child ends with the status it chose, and nothing is printed")
def step_the_child_ends_with_the_status_it_chose(context: Context) -> None:
    assert context.told["status"] == 7, context.told  # what is printed is an error


@then("the workers of the parent go on")
def step_the_workers_of_the_parent_go_on(context: Context) -> None:
    assert context.told["n"] == 2, context.told


@when("a process forks, and the child uses a bridge that was not used before")
def step_a_process_forks_and_the_child_uses_a_bridge(context: Context) -> None:
    context.told = run_process("forking first")


@then("the child has its result, and no connection to Ray after it has closed the bridge")
def step_the_child_has_its_result_and_no_connection_to_ray(context: Context) -> None:
    assert context.told == {"n": 2, "connected": False, "status": 7}, context.told


# -- clusters that stop ----------------------------------------------------------------------------


@when("a process shuts Ray down while a run is in flight, and then sends another message")
def step_a_process_shuts_ray_down_while_a_run_is_in_flight(context: Context) -> None:
    context.told = run_process("shutting down")


@then("the run in flight fails with {error:w}, and the other one has its result")
def step_the_run_in_flight_fails_and_the_other_one_has_its_result(
    context: Context, error: str
) -> None:
    assert context.told["error"] == error and context.told["n"] == 1, context.told


@then("there is no connection to Ray when the bridge is closed")
def step_there_is_no_connection_to_ray_when_the_bridge_is_closed(context: Context) -> None:
    assert context.told["connected"] is False, context.told


def start_process(context: Context, *arguments: str) -> subprocess.Popen[str]:
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": str(PATIENCE)}
    process = subprocess.Popen(
        [sys.executable, PROCESS, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "features"), **patience},
    )
    context.add_cleanup(end_process, process)
    return process


# Seconds that Ray gives a cluster that does not answer before it ends the program. 60 by default.
PATIENCE = 25


def end_process(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def start_node(context: Context, port: int, *, first: bool) -> Node:
    node = Node(port, first=first)
    context.add_cleanup(node.__exit__, None, None, None)
    return node


@given("a cluster on this machine")
def step_a_cluster_on_this_machine(context: Context) -> None:
    context.node = start_node(context, free_port(), first=True)
    context.address = f"127.0.0.1:{context.node.port}"


@given("a cluster on this machine, with a second node")
def step_a_cluster_on_this_machine_with_a_second_node(context: Context) -> None:
    step_a_cluster_on_this_machine(context)
    context.second = start_node(context, context.node.port, first=False)


@when("two programs have a run in flight in it, and the cluster is killed")
def step_two_programs_have_a_run_in_flight_and_the_cluster_is_killed(context: Context) -> None:
    context.programs = [start_process(context, "surviving", context.address) for _ in range(2)]
    for program in context.programs:
        assert program.stdout.readline() == "begun\n"
    context.node.kill()
    context.killed = monotonic()


@then("their runs fail with WorkerLostError")
def step_their_runs_fail_with_workerlosterror(context: Context) -> None:
    for program in context.programs:
        assert program.stdout.readline() == "over\n"
    assert monotonic() - context.killed < PATIENCE, "only because Ray has given the cluster up"


@then("the next ones with {error:w}, until a cluster is started there again")
def step_the_next_ones_with_until_a_cluster_is_started_there_again(
    context: Context, error: str
) -> None:
    threading.Event().wait(context.killed + PATIENCE + 5 - monotonic())  # what Ray waits for
    start_node(context, context.node.port, first=True)
    for program in context.programs:
        told, _ = program.communicate("on\n", LIMIT)
        assert program.returncode == 0, program.returncode
        assert json.loads(told) == {"errors": ["WorkerLostError", error], "n": 2}, told


@then("both programs still run when Ray would have ended them")
def step_both_programs_still_run_when_ray_would_have_ended_them(context: Context) -> None:
    assert [program.returncode for program in context.programs] == [0, 0]


@when("a program has runs in flight on both nodes, and the second one is killed")
def step_a_program_has_runs_in_flight_on_both_nodes(context: Context) -> None:
    context.program = start_process(context, "spread", context.address)
    pids = set(json.loads(context.program.stdout.readline()))
    lost = pids & set(context.second.processes())
    assert len(pids) == 2 and len(lost) == 1, (pids, lost)
    context.second.kill()
    told, _ = context.program.communicate(f"{next(iter(lost))}\n", LIMIT)
    context.told = json.loads(told)


@then("all of its runs have results, from the first node")
def step_all_of_its_runs_have_results_from_the_first_node(context: Context) -> None:
    assert context.told == {"numbers": [0, 1, 2, 3], "lost": 0}, context.told
