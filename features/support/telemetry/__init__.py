"""What traces and metrics export, and a receiver for it."""
