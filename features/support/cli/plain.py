"""An interpreter that finds the packages of the plain installation, and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import rxlanggraph
from support.cli.command import DEADLINE, ROOT, environment

__all__ = ["fill_plain_site", "run_plain"]

_NAME = re.compile(r"[A-Za-z0-9._-]+")
# What an extra of a package needs, which is not installed with it.
_EXTRA = re.compile(r";.*\bextra\b")


def fill_plain_site(site: Path) -> None:
    """Fill a folder with links to the packages that this one needs without any extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted, found = list(project["dependencies"]), set()
    while wanted:
        requirement = wanted.pop()
        name = _NAME.match(requirement)[0].lower()
        if name in found or _EXTRA.search(requirement):
            continue
        found.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system, or another Python
            continue
        wanted.extend(distribution.requires or [])
        for top in {file.parts[0] for file in distribution.files or []}:
            target = Path(distribution.locate_file(top))
            if top not in ("..", "__pycache__") and not (site / top).is_symlink():
                (site / top).symlink_to(target)
    (site / "rxlanggraph").symlink_to(Path(rxlanggraph.__file__).parent)


def run_plain(site: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that finds nothing but the standard library and those packages."""
    variables = environment() | {"PYTHONPATH": os.fspath(site)}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
