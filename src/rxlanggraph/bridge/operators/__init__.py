"""How a stream of messages becomes a stream of runs."""
