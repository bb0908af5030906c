"""Where runs are executed: in the process of their bridge, or in worker processes.

With an executor, only the calls of the graph leave the process. Order, lanes, limits of time,
retries, statuses and the registry stay in the bridge.

A map; each imports only from those above it.

    contract             what a bridge asks of an executor, and that of a cluster
    payloads             calls, results and errors as bytes
    companions           what else belongs to a call, and is in both processes
    targets              which graph the workers load
    host                 in a worker process: its graph, and the calls in progress
    remote_graph         a graph whose calls go to the workers
    pool                 which worker gets which call
    local                in this process
    ray                  in actors of Ray
"""

from rxlanggraph.executors.contract import Cluster, Executor, Worker, Workers
from rxlanggraph.executors.local import LocalExecutor
from rxlanggraph.executors.ray import RayExecutor

__all__ = ["Cluster", "Executor", "LocalExecutor", "RayExecutor", "Worker", "Workers"]
