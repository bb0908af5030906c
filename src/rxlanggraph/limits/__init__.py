"""The model calls of runs: the limits of their providers, and what they cost.

A map; each imports only from those above it.

    signals      what a provider's errors and headers say: the status, how long to wait
    windows      how much was used in the last minute
    shared       the same, shared by several processes in a state
    waits        how one call waits, on a loop or in a thread
    gate         one key: which call may be made next, and how many at once
    retrying     which failures are retried, and how many retries there may be
    usage        the tokens that runs have used, and what they cost
    limiter      Limits: which call has which key
    callbacks    LangChain callbacks, in which the model calls of a run wait
    rules        the limits and the usage of one bridge
"""

from rxlanggraph.limits.gate import LimitStatistics, ModelLimit
from rxlanggraph.limits.limiter import Limits, ModelCall
from rxlanggraph.limits.retrying import is_transient
from rxlanggraph.limits.usage import Price, Spent, Usage

__all__ = [
    "LimitStatistics",
    "Limits",
    "ModelCall",
    "ModelLimit",
    "Price",
    "Spent",
    "Usage",
    "is_transient",
]
