"""What accompanies the calls of a run to its worker process: see `executors.companions`.

Each module has both sides: ``...Here`` is in the driver, ``...There`` in the worker.

A map; each imports only from those above it.

    nodes                hooks hear of nodes, and snapshots show them
    models               calls of models wait in the driver, and are counted there
    fence                the saver of a worker refuses runs that have lost their thread
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rxlanggraph.bridge.remote.fence import FenceHere
from rxlanggraph.bridge.remote.models import ModelsHere
from rxlanggraph.bridge.remote.nodes import NodesHere
from rxlanggraph.bridge.run import Run
from rxlanggraph.executors.companions import NewCompanion
from rxlanggraph.limits.rules import ModelRules

__all__ = ["companions_of"]


def companions_of(run: Run, models: ModelRules | None) -> Sequence[NewCompanion]:
    """Return what accompanies the calls of ``run``, which begins. On the loop.

    The context of the run keeps it, and so it refers to the scope of the run alone.
    """
    scope, observed = run.scope, run.observed
    assert scope is not None
    found: list[NewCompanion] = []
    if observed is not None and observed.by.node:
        found.append(partial(NodesHere, scope))
    if models is not None:
        found.append(partial(ModelsHere, scope, models))
    if run.lease is not None:
        found.append(partial(FenceHere, scope))
    return found
