"""The slowest scenarios and tests of the last run, of the JUnit files that nox has left in build.

Usage: python tests/slowest.py [HOW MANY [FOLDER]]

A scenario counts with its steps; its hooks, as the check for leaks, are the same for all.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

RESULTS = Path(__file__).resolve().parents[1] / "build" / "results"


def durations(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Seconds of each test in each session, by feature or suite, and name."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for report in folder.rglob("*.xml"):
        session = report.relative_to(folder).parts[0]
        for case in ElementTree.parse(report).iter("testcase"):
            feature = case.get("classname", "").split(".")[:2]
            found[".".join(feature), case.get("name", "")][session] = float(case.get("time", 0))
    return found


def main(count: int = 20, folder: Path = RESULTS) -> None:
    """Print so many, the longest first, and then so many features and suites."""
    tests = durations(folder)
    wholes: dict[str, float] = defaultdict(float)
    for (feature, _), sessions in tests.items():
        wholes[feature] += max(sessions.values())
    slowest = sorted(tests, key=lambda test: max(tests[test].values()), reverse=True)
    for feature, name in slowest[:count]:
        times = tests[feature, name]
        session = max(times, key=times.__getitem__)
        print(f"{times[session]:7.1f} s  {feature}: {name}  ({session})")
    print()
    for feature in sorted(wholes, key=wholes.__getitem__, reverse=True)[:count]:
        print(f"{wholes[feature]:7.1f} s  {feature}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *map(Path, sys.argv[2:]))
