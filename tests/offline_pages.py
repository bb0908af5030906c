"""What the pages of the documentation site load from other hosts: nothing, or this ends with 1.

Usage: python tests/offline_pages.py FOLDER

Links are not loaded, so they may lead anywhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# A link of these kinds is for the reader, or for other programs.
_NOT_LOADED = {"alternate", "author", "canonical", "help", "license", "next", "prev", "search"}
_ELSEWHERE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s;]+)", re.IGNORECASE)


class _Page(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        kinds = set(given.get("rel", "").lower().split())
        names = ["src", "srcset", "data", "poster"]
        if tag == "link" and not kinds & _NOT_LOADED:
            names.append("href")
        self.loaded += [given[name] for name in names if _ELSEWHERE.match(given.get(name, ""))]
        self.loaded += _IN_STYLE.findall(given.get("style", ""))


def loaded_from_elsewhere(name: str, text: str) -> list[str]:
    """The addresses on other hosts that the page, or style sheet, ``name`` loads."""
    found = _IN_STYLE.findall(text) if name.endswith(".css") else []
    if name.endswith(".html"):
        page = _Page()
        page.feed(text)
        styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL | re.IGNORECASE)
        found = page.loaded + [address for style in styles for address in _IN_STYLE.findall(style)]
    return found


def check(folder: Path) -> Iterator[str]:
    """A line for each address that is loaded."""
    for path in sorted(folder.rglob("*.*")):
        if path.suffix in (".html", ".css"):
            for address in loaded_from_elsewhere(path.name, path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(folder)} loads {address}"


if __name__ == "__main__":
    found = list(check(Path(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
