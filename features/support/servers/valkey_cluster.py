"""A cluster of two real Valkey servers, and how a namespace moves from one to the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from support.servers.valkey_server import STARTING, LocalValkey

__all__ = ["Cluster", "Node"]


@dataclass
class Node:
    """One server, and a plain client of it."""

    server: LocalValkey
    client: Any
    name: str

    def say(self, *command: object) -> Any:
        return self.client.execute_command(*command)

    @property
    def ready(self) -> bool:
        return bool(self.say("CLUSTER INFO")["cluster_state"] == "ok")


class Cluster:
    """Two nodes that each have half of the slots."""

    def __init__(self, first: Node, second: Node) -> None:
        self.nodes = first, second

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Cluster]:
        with contextlib.ExitStack() as stack:
            first, second = (_node(stack) for _ in range(2))
            first.say("CLUSTER ADDSLOTSRANGE", 0, 8191)
            second.say("CLUSTER ADDSLOTSRANGE", 8192, 16383)
            first.say("CLUSTER MEET", "127.0.0.1", second.server.port)
            Retrying(
                retry=retry_if_result(lambda ready: not ready),
                wait=wait_fixed(0.05),
                stop=stop_after_delay(STARTING),
            )(lambda: first.ready and second.ready)
            yield cls(first, second)

    def slot_of(self, namespace: str) -> int:
        return int(self.nodes[0].say("CLUSTER KEYSLOT", f"{{{namespace}}}"))

    def having(self, slot: int) -> tuple[Node, Node]:
        """The node that has the slot, and the other one, in the beginning."""
        first, second = self.nodes
        return (first, second) if slot < 8192 else (second, first)

    def move(self, slot: int, source: Node, target: Node) -> None:
        """https://valkey.io/commands/cluster-setslot/"""
        target.say("CLUSTER SETSLOT", slot, "IMPORTING", source.name)
        source.say("CLUSTER SETSLOT", slot, "MIGRATING", target.name)
        there = ("127.0.0.1", target.server.port, "", 0, 60_000)
        while keys := source.say("CLUSTER GETKEYSINSLOT", slot, 10):
            source.say("MIGRATE", *there, "KEYS", *keys)
        for node in (target, source):
            node.say("CLUSTER SETSLOT", slot, "NODE", target.name)


def _node(stack: contextlib.ExitStack) -> Node:
    server = stack.enter_context(LocalValkey(cluster_enabled=True))
    client: redis.Redis = stack.enter_context(server.client())
    return Node(server, client, str(client.execute_command("CLUSTER MYID")))
