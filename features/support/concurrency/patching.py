"""Replacing something for the rest of a scenario."""

from __future__ import annotations

from typing import Any
from unittest import mock

from behave.runner import Context


def patch(context: Context, target: Any, name: str, value: Any) -> None:
    patcher = mock.patch.object(target, name, value)
    patcher.start()
    context.add_cleanup(patcher.stop)
