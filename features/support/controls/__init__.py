"""Controls: the naive ways that scenarios must see fail."""
