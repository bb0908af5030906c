"""What LangGraph's SDK calls of orjson, by the json module.

orjson refuses to be built for Python without the GIL, and LangGraph requires it, although only its
clients of a remote server use it. LangSmith brings a substitute of its own. The session
behave-freethreaded installs this module instead; delete it when orjson has wheels for that Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import JSONDecodeError, loads
from typing import Any

__all__ = ["OPT_NON_STR_KEYS", "OPT_SERIALIZE_NUMPY", "JSONDecodeError", "dumps", "loads"]

# The json module takes keys that are not strings as it is; arrays of numpy go to `default`.
OPT_SERIALIZE_NUMPY, OPT_NON_STR_KEYS = 1 << 4, 1 << 2


def dumps(
    value: Any, /, default: Callable[[Any], Any] | None = None, option: int | None = None
) -> bytes:
    text = json.dumps(value, default=default, ensure_ascii=False, separators=(",", ":"))
    return text.encode()
