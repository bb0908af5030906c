"""The connection to Ray, of which a process has one: shared by its executors, and counted.

The last one that is given back ends it, and with it a cluster that was started here. What breaks
without the count: a bridge that closes would end the workers of another one. A connection whose
cluster does not answer any more is ended as well, and the next one is a new one: Ray itself would
end this process after a minute.

One thread makes the connection and ends it, and lives in between: Linux ends the processes of a
cluster with the *thread* that has started them, as Ray asks it to, so that they do not outlive a
program that is killed.

A forked child has a copy of the connection, without the threads that it needs. What breaks if it is
used or ended there: calls hang, and the exit of the child ends its parent's cluster, or crashes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any

from rxlanggraph.concurrency.forking import fork_safe_rlock, wrong_process
from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import (
    ExecutorUnavailableError,
    InvalidArgumentError,
    WrongProcessError,
    error_text,
)
from rxlanggraph.executors.ray.forked import leave_to_parent
from rxlanggraph.executors.ray.library import ray_module
from rxlanggraph.executors.ray.signals import signals_kept

__all__ = ["Connection", "connect", "disconnect"]

_log = logging.getLogger("rxlanggraph")

_LOCAL = ("127.0.0.1", "localhost", "::1")
# Seconds for a cluster to be joined, or to start. A guess: far more than it takes.
_CONNECT = 60.0
# Seconds for a cluster to accept a connection of its own machine, or of one nearby. A guess.
_ANSWER = 3.0
# Seconds between two looks for the cluster, and how often in a row it does not answer before it is
# given up: together less than the minute after which Ray ends the process.
_LOOK, _SILENT = 2.0, 8
# Seconds that the exit of the interpreter waits for another thread that ends the connection.
_AT_EXIT = 15.0
# Seconds for the last processes of a cluster to end, which write into its folder. A guess.
_FILES_END = 5.0
# The paths of sockets are limited to 107 characters, of which Ray takes some 75.
_LONGEST_FOLDER = 30
_USAGE, _NO_CLUSTER = "RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class Connection:
    """One connection, from its making to its end.

    Args:
        ray: The module.
        address: As in `RayExecutor`.
        loopback: As there.
        dashboard: As there.
    """

    def __init__(self, ray: Any, address: str | None, *, loopback: bool, dashboard: bool) -> None:
        self._ray = ray
        self.address = address
        self._loopback = loopback
        self._dashboard = dashboard
        # Guards the two that follow, but for removals, each a single pop; held for moments.
        self._lost_lock = threading.Lock()
        self._lost = False
        self._when_lost: dict[object, Callable[[], object]] = {}
        self.users = 0  # guarded by `_lock`
        self._cluster = ""  # where it answers; written once, by the thread
        self._folder: str | None = None  # of a cluster that was started here
        self._made: Future[None] = Future()
        self._leave = threading.Event()
        self._gone = threading.Event()  # never set: for pauses
        self._thread = threading.Thread(target=self._keep, name="rxlanggraph-ray", daemon=True)

    @property
    def own(self) -> bool:
        """Whether the cluster was started here. Any thread, after `open`."""
        return self._folder is not None

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be used any more. Any thread, after `open`."""
        return self._lost or not self._ray.is_initialized()

    def when_lost(self, callback: Callable[[], object]) -> Callable[[], object]:
        """Call ``callback`` when it has been given back, or the cluster does not answer any more.

        Any thread; never blocks.

        Args:
            callback: Called once, in the thread of the connection or this one; must not raise.

        Returns:
            A function that withdraws the callback.
        """
        key = object()
        with self._lost_lock:
            lost = self._lost
            if not lost:
                self._when_lost[key] = callback
        if lost:
            callback()
        return partial(self._when_lost.pop, key, None)

    def _lose(self) -> None:
        with self._lost_lock:
            self._lost = True
            callbacks = list(self._when_lost.values())
        for callback in callbacks:
            callback()

    def refusal(self) -> OSError | None:
        """Why the cluster does not answer, if it does not. Any thread, after `open`; blocks.

        Ray itself blocks for as long as it does not, and then ends the process.
        """
        host, _, port = self._cluster.rpartition(":")
        return _refusal(host.strip("[]"), int(port))

    def open(self) -> None:
        """Make the connection. Blocks.

        Raises:
            ExecutorUnavailableError: The cluster does not answer.
        """
        start_detached(self._thread)
        try:
            self._made.result(_CONNECT)
        except TimeoutError as error:
            where = "a cluster of its own" if self.address is None else self.address
            raise ExecutorUnavailableError(
                f"no connection to {where} within {_CONNECT:g} s; the address must be that of a "
                "cluster of which this machine is a node: see 'ray status'"
            ) from error

    def close(self) -> None:
        """End it. Blocks."""
        self._leave.set()
        self._thread.join()

    def _remove_folder(self) -> None:
        if self._folder is None:
            return
        until = monotonic() + _FILES_END
        while os.path.lexists(self._folder) and monotonic() < until:
            shutil.rmtree(self._folder, ignore_errors=True)  # others may still write into it
            self._gone.wait(0.05)

    def _keep(self) -> None:
        global _used, _connected_here
        try:
            found = bool(self._ray.is_initialized())
            _used, _connected_here = True, _connected_here if found else self._ray
            if found:
                pass  # by other code, which also ends it
            elif self.address is None:
                self._folder = _start(self._ray, loopback=self._loopback, dashboard=self._dashboard)
            else:
                _join(self._ray, self.address)
        except BaseException as error:
            self._made.set_exception(error)
            return
        self._cluster = self._ray.get_runtime_context().gcs_address
        self._made.set_result(None)
        try:
            self._wait_for_end(found)
        finally:
            self._lose()
        if found:
            return
        with contextlib.suppress(Exception):  # the cluster has gone before
            self._ray.shutdown()
        self._remove_folder()

    def _wait_for_end(self, found: bool) -> None:
        silent = 0
        while not self._leave.wait(_LOOK):
            if not self._ray.is_initialized():  # other code has ended it
                return
            silent = silent + 1 if not found and self.refusal() is not None else 0
            if silent == _SILENT:
                _log.error("the Ray cluster at %s does not answer any more", self._cluster)
                return


# Guards what follows. Held while the connection is made and ended, which takes seconds: a second
# caller waits for the same.
_lock = fork_safe_rlock()
_current: Connection | None = None
# Whether there ever was a connection, and Ray if it was made here. Written by the threads of
# connections, one after the other; read in a forked child, where one that has ended is no better.
_used = False
_connected_here: Any = None
# Set in a forked child, before its own code continues.
_elsewhere: WrongProcessError | None = None


def connect(address: str | None, *, loopback: bool, dashboard: bool) -> Connection:
    """Connect to the cluster at ``address``, or start one here. Any thread; blocks for seconds.

    Args:
        address: As in `RayExecutor`.
        loopback: As there.
        dashboard: As there.

    Returns:
        The connection of this process, to be given back to `disconnect`.

    Raises:
        ExecutorUnavailableError: It does not answer.
        InvalidArgumentError: There is a connection to another cluster.
        WrongProcessError: This process was forked from one with a connection.
    """
    global _current  # noqa: PLW0603 - the connection of the process
    ray = ray_module()
    with _lock:
        if _elsewhere is not None:
            raise WrongProcessError(*_elsewhere.args)
        if _current is not None and _current.is_lost:
            _current.close()
            _current = None
        if _current is None:
            connection = Connection(ray, address, loopback=loopback, dashboard=dashboard)
            connection.open()
            _current = connection
        elif address is not None and address != _current.address:
            raise InvalidArgumentError(
                f"a process has one connection to Ray, and this one has one to "
                f"{_current.address or 'a cluster of its own'}; use one address for all executors"
            )
        _current.users += 1
        return _current


def disconnect(connection: Connection) -> None:
    """Give back what `connect` has returned. Any thread; the last one blocks for seconds."""
    global _current  # noqa: PLW0603 - as above
    with _lock:
        if _elsewhere is not None:  # it is the parent's
            return
        connection.users -= 1
        if not connection.users:
            connection.close()
            if _current is connection:
                _current = None


def _after_fork() -> None:
    global _current, _elsewhere  # noqa: PLW0603 - of the process
    if not _used:
        return
    _current = None
    _elsewhere = wrong_process(
        "the connection to Ray",
        "start processes that use Ray before it is made, or by multiprocessing's method 'spawn'",
    )
    if _connected_here is not None:
        leave_to_parent(_connected_here)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    """End a connection that was not given back, or wait for its end. Any thread; blocks."""
    if not _lock.acquire(timeout=_AT_EXIT):
        return
    connection = _current
    _lock.release()
    if connection is not None:
        connection.close()


# Here, when this is imported: what is registered later runs before it, and bridges are, which end
# their runs first; mostly also Ray, whose own shutdown writes files in the folder.
atexit.register(_at_exit)


def _start(ray: Any, *, loopback: bool, dashboard: bool) -> str:
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_FOLDER and os.path.isdir("/tmp"):  # noqa: S108 - a new folder in it
        base = "/tmp"  # noqa: S108
    folder = tempfile.mkdtemp(prefix="rxlg-ray-", dir=base)
    try:
        with _settings(ray, loopback=loopback), signals_kept():
            ray.init(
                address="local",
                include_dashboard=dashboard,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=folder,
            )
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        raise ExecutorUnavailableError(
            f"no Ray cluster could be started on this machine: {error_text(error)}"
        ) from error
    return folder


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if port.isdigit():
        error = _refusal(host, int(port))
        if error is not None:
            raise ExecutorUnavailableError(
                f"no Ray cluster answers at {address}: {error_text(error)}; start one with "
                "'ray start --head', or leave the address out to start one for this process"
            ) from error
    # Ray takes a local address for the one by which other machines reach this one. A cluster that
    # listens on the loopback interface alone has no such address, and Ray would look for it long.
    alone = port.isdigit() and host in _LOCAL and _refusal(_own_address(), int(port)) is not None
    try:
        if port.isdigit() and _is_own(host):
            _show_token(ray)
        with _settings(ray, loopback=alone), signals_kept():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ExecutorUnavailableError(
            f"the Ray cluster at {address} cannot be joined: {error_text(error)}; this machine "
            "must be a node of it, and if it has tokens, RAY_AUTH_MODE=token must be set here too"
        ) from error


def _show_token(ray: Any) -> None:
    """Use the token of this machine, if there is one, as ``ray start`` and ``"auto"`` do."""
    authentication: Any = getattr(getattr(ray, "_private", None), "authentication", None)
    setup: Any = getattr(authentication, "authentication_token_setup", None)
    enable: Any = getattr(setup, "maybe_enable_token_auth_if_token_available", None)
    if enable is not None:  # since Ray 2.60
        logger: Any = setup.logger
        quiet, logger.disabled = logger.disabled, True
        try:
            enable(warn_if_disabled=False)
        finally:
            logger.disabled = quiet


def _refusal(host: str, port: int) -> OSError | None:
    try:
        socket.create_connection((host, port), _ANSWER).close()
    except OSError as error:
        return error
    return None


def _is_own(host: str) -> bool:
    """Whether ``host`` is an address of this machine. Sends nothing, but to resolve a name."""
    with contextlib.suppress(OSError):
        for family, *_, address in socket.getaddrinfo(host.strip("[]"), 0):
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind(address)  # refused for the addresses of others
                return True
    return False


def _own_address() -> str:
    """The address by which other machines reach this one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # for documentation alone: RFC 5737
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


@contextlib.contextmanager
def _settings(ray: Any, *, loopback: bool) -> Iterator[None]:
    """Set what Ray reads from the environment alone, in this process and in those it starts."""
    # Ray's own processes are not free of warnings, and do not start where these are errors.
    variables = {_USAGE: "0", "PYTHONWARNINGS": "default"}
    # It would print on standard output what becomes of workers; a lost one is told of as an error.
    module: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(module, "_worker_logs_enabled"):
        module._worker_logs_enabled = False
    constants: Any = getattr(getattr(ray, "_private", None), "ray_constants", None)
    known = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    if loopback:
        variables[_NO_CLUSTER] = "0"  # what it is called by; on Linux it does the same
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        if loopback and known is not None:
            constants.ENABLE_RAY_CLUSTER = False  # read when Ray was imported
        yield
    finally:
        if loopback and known is not None:
            constants.ENABLE_RAY_CLUSTER = known
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
