"""The SDK's own client, told line by line what to do; answers are printed as JSON as they come.

Usage: mcp_client.py MODE stdio, or mcp_client.py MODE URL. MODE is the SDK's: auto, legacy.

Lines: ``NUMBER AGENT MESSAGE`` calls, ``cancel NUMBER`` cancels that call, ``list`` lists tools.
At the end of the input it waits for all answers, and leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp import Client, MCPError, StdioServerParameters

SERVER = Path(__file__).with_name("mcp_agents.py")


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def call(client: Client, number: str, agent: str, message: str) -> None:
    try:
        result = await client.call_tool(agent, {"message": message, "sender": "robot"})
    except asyncio.CancelledError:
        tell(number=number, cancelled=True)
        raise
    except MCPError as error:
        tell(number=number, refused=str(error))
        return
    text = "".join(block.text for block in result.content)
    tell(number=number, error=bool(result.is_error), text=text)


async def obey(client: Client) -> None:
    calls: dict[str, asyncio.Task[None]] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, *rest = line.split(maxsplit=2)
        if order == "cancel":
            calls[rest[0].strip()].cancel()
        elif order == "list":
            tools = (await client.list_tools()).tools
            tell(tools={tool.name: tool.description for tool in tools})
        else:
            calls[order] = asyncio.create_task(call(client, order, rest[0], rest[1].strip()))
    await asyncio.gather(*calls.values(), return_exceptions=True)


async def main(mode: str, where: str) -> None:
    server: Any = where
    if where == "stdio":
        line = [str(SERVER), "stdio"]
        server = StdioServerParameters(command=sys.executable, args=line, env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        tell(connected=client.protocol_version)
        await obey(client)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
