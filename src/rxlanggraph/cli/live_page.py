"""LivePage: the page of ``--live`` and ``rxlanggraph live``, served while a command lasts."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.internal import watched
from rxlanggraph.cli.addresses import Address
from rxlanggraph.cli.errors import LiveError
from rxlanggraph.cli.passwords import LIVE_TOKEN
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.errors import InvalidArgumentError, MissingExtraError
from rxlanggraph.live.access import Access
from rxlanggraph.live.bridge_source import BridgeSource
from rxlanggraph.live.schema import JournalProgress
from rxlanggraph.live.source import Source
from rxlanggraph.validation import LOOPBACK, check_hosts, is_loopback

__all__ = ["LivePage", "live_page"]

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 # compared with, not listened on


class LivePage:
    """The page of a command, whose address is taken already. The main thread.

    Args:
        listener: Listens at the address.
        address: The address.
        access: Who may see the page.
        show_content: Whether what messages say is shown.
        stack: Ends the serving, at the end of the command.
    """

    def __init__(
        self,
        listener: socket.socket,
        address: Address,
        access: Access,
        *,
        show_content: bool,
        stack: contextlib.ExitStack,
    ) -> None:
        self.show_content = show_content
        self._listener = listener
        self._address = address
        self._access = access
        self._stack = stack

    def show(
        self,
        bridge: RxPyLangGraphBridge,
        journal: Callable[[], JournalProgress | None] = lambda: None,
    ) -> None:
        """Serve the page of ``bridge``, from now on until the command ends. Once.

        Args:
            bridge: The bridge of the command's runs.
            journal: Returns the progress of their journal, in any thread.
        """
        self.serve(BridgeSource(watched(bridge), show_content=self.show_content, journal=journal))

    def serve(self, source: Source) -> None:
        """Serve the page of ``source``, from now on until the command ends. Once."""
        from rxlanggraph.live.app import LiveApp  # noqa: PLC0415 # of an extra, as below
        from rxlanggraph.live.server import served  # noqa: PLC0415

        app = LiveApp(source, self._access)
        self._stack.enter_context(served(app, self._listener))
        print_stderr(f"live: http://{self._address}{app.path}")


@contextlib.contextmanager
def live_page(address: Address, *, show_content: bool) -> Iterator[LivePage]:
    """Listen at ``address`` for the length of a block; serve what is to be shown there.

    Raises:
        LiveError: The extra ``live`` is not installed, the address is wrong or in use, or the token
            that the environment sets cannot be one.
    """
    try:
        from rxlanggraph.live.server import served  # noqa: F401, PLC0415 # slow, and of an extra
    except MissingExtraError as error:
        raise LiveError(str(error)) from error
    host = address.host
    own = () if host in (*LOOPBACK, *_ALL_ADDRESSES) else (host,)
    try:
        hosts = check_hosts("the host", (*LOOPBACK, *own))
    except InvalidArgumentError as error:
        raise LiveError(f"cannot serve the live page on {address}: {error}") from error
    try:
        access = Access(os.environ.get(LIVE_TOKEN), hosts, any_address=host in _ALL_ADDRESSES)
    except InvalidArgumentError as error:
        raise LiveError(f"{LIVE_TOKEN}: {error}") from error
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, address.port), family=family)
    except OSError as error:
        raise LiveError(
            f"cannot serve the live page on {address}: {error.strerror or error}; give a free "
            "address of this machine"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        if not is_loopback(host):
            print_stderr(
                f"the live page on {address} can be reached from other machines, and is not "
                "encrypted: put a proxy with TLS in front, or listen on 127.0.0.1 and use a tunnel"
            )
        port = listener.getsockname()[1]
        yield LivePage(
            listener, Address(host, port), access, show_content=show_content, stack=stack
        )
