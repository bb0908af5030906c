"""Texts of others, made fit for any encoder. Pure functions, for any thread."""

from __future__ import annotations

__all__ = ["encodable", "error_text"]


def encodable(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot hold (lone surrogates) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_text(error: BaseException) -> str:
    """Return what an exception says, even if it cannot say it."""
    try:
        return encodable(str(error))
    except Exception as second:
        return f"(its __str__ raised {type(second).__name__})"
