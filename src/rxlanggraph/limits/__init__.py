"""What runs ask of model providers: limits of it, and what it costs.

A map; each imports only from those above it.

    signals      what a provider's errors and headers say: the status, how long to wait
    windows      how much was used in the last minute
    shared       the same for several processes, in a state
    waits        how one call waits, on a loop or in a thread
    gate         one key: which call may be made next, and how many at once
    retrying     which failures are worth another attempt, and how many of those there may be
    usage        the tokens that runs have used, and what they cost
    limiter      Limits: which call has which key
    callbacks    LangChain's callbacks of a run, by which its model calls wait
    rules        all this for one bridge
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
