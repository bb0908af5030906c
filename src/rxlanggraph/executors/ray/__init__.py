"""RayExecutor: worker processes are actors of Ray, on this machine or in a cluster.

A map; each imports only from those above it.

    library              ray itself, if it is installed
    pickling             a factory as bytes
    signals              what Ray must not change
    forked               what a forked child must not touch
    actor                a worker process, as Ray calls it
    connection           the one connection of a process to a cluster
    cluster              starting workers, for one bridge
    executor             the public class
"""

from rxlanggraph.executors.ray.executor import RayExecutor

__all__ = ["RayExecutor"]
