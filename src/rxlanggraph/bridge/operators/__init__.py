"""How a stream of messages becomes a stream of runs, and an iterable a stream of messages."""
