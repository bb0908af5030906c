"""Ray, which is imported when it is first needed: it takes longer than this package."""

from __future__ import annotations

import importlib
from typing import Any

from rxlanggraph.errors import MissingExtraError

__all__ = ["ray_module"]


def ray_module() -> Any:
    """Return the module ``ray``. Any thread; blocks as importing does.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError(
            "RayExecutor needs Ray, which is not installed; install the extra 'ray': pip install "
            "'rxlanggraph[ray]' (there is no build of it for Python without the GIL)"
        ) from error
