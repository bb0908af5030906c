"""Steps for workers that other processes wake."""

from __future__ import annotations

from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateClosedError
from support.concurrency.tasks import run
from support.servers import servers
from support.servers.valkey_server import LocalValkey
from support.state import arriving

LEFT_OUT = {
    "without the right to publish": "+publish",
    "without the right to subscribe": "+subscribe",
    "with the rights to be woken": "",
}


@given("an empty queue on the server of {backend}")
def step_an_empty_queue_on_backend(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)


@given("a Valkey server of its own with an empty queue, for a user {rights}")
def step_an_empty_queue_for_a_user(context: Context, rights: str) -> None:
    server = LocalValkey()
    context.add_cleanup(server.close)
    server.start()
    documented = Path("docs/state.md").read_text(encoding="utf-8")
    allowed = documented.partition("ACL SETUSER app ")[2].partition("\n")[0]
    more = documented.partition("With `+publish")[2].partition("`")[0]
    assert "+subscribe" in more, more
    words = f"{allowed} +publish{more}".replace(">PASSWORD", ">sesame").split()
    words = [word for word in words if word != LEFT_OUT[rights]]
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", *words)
    context.url = server.url.replace("redis://", "redis://app:sesame@")


@when("a worker waits for a task, and another process adds one")
def step_a_worker_waits_and_another_process_adds(context: Context) -> None:
    with arriving.never_polling() as pauses:
        context.item = run(arriving.add_in_process(context.url, pauses))


@when("a worker that is deaf waits for a task, and another process adds one")
def step_a_worker_that_is_deaf_waits_and_another_process_adds(context: Context) -> None:
    with arriving.never_polling() as pauses, arriving.deaf():
        context.item = run(arriving.add_in_process(context.url, pauses, arriving.ASLEEP))


@then("the worker has claimed it")
def step_the_worker_has_claimed_it(context: Context) -> None:
    assert context.item == "a", context.item


@when("a worker waits, and another state frees a task in each way")
def step_another_state_frees_a_task_in_each_way(context: Context) -> None:
    with arriving.never_polling():
        context.woken = run(arriving.free_in_each_way(context.url))


@then("it was woken each time")
def step_it_was_woken_each_time(context: Context) -> None:
    assert len(context.woken) == len(arriving.WAYS), context.woken


@when("a worker waits, its listening connection is killed, and another state adds a task")
def step_its_listening_connection_is_killed(context: Context) -> None:
    with arriving.never_polling():
        context.item = run(arriving.kill_listener(context.url))


@when("a state is closed while it {does}")
def step_a_state_is_closed_while(context: Context, does: str) -> None:
    with arriving.never_polling():
        context.error, context.left = run(
            arriving.close_while_waiting(context.url, does == "listens")
        )


@then("the worker was told StateClosedError, and the server has no connection of the state")
def step_the_worker_was_told_and_the_server_has_no_connection(context: Context) -> None:
    assert isinstance(context.error, StateClosedError), repr(context.error)
    assert context.left == 0, context.left


@when("a worker claims what is there, and looks for more without waiting")
def step_a_worker_looks_for_more_without_waiting(context: Context) -> None:
    run(arriving.use_without_waiting(context.url))


@then("no connection listens")
def step_no_connection_listens(context: Context) -> None:
    assert run(arriving.listeners(context.url)) == 0


@when("another client listens, and tasks are added before, while and after a worker waits")
def step_another_client_listens(context: Context) -> None:
    context.told = run(arriving.notified_between(context.url))


@then("that client was notified of those in between alone")
def step_that_client_was_notified(context: Context) -> None:
    assert context.told == ["between"], context.told


@when("the network loses a process that is about to listen, and another state adds a task")
def step_the_network_loses_a_process_that_is_about_to_listen(context: Context) -> None:
    context.added = run(arriving.add_beside_lost_listener(context.url))


@then("the task was added")
def step_the_task_was_added(context: Context) -> None:
    assert len(context.added) == 1, context.added


@when("a worker that polls waits behind a pooler in transaction mode, and a task is added")
def step_a_worker_waits_behind_a_pooler(context: Context) -> None:
    context.item, listening = run(arriving.add_behind_pooler(context.url))
    assert listening == 0, listening


@when("a worker that polls waits for a task, and another state of that user adds one")
def step_a_worker_that_polls_waits(context: Context) -> None:
    context.item = run(arriving.wait_and_poll(context.url))
