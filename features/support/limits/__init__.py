"""Providers that enforce limits, and models that call them."""
