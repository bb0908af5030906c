"""Real servers, and what stands between them and their clients."""
