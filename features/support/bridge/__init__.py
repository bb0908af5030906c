"""Bridges, graphs, runs and the models of their parts."""
