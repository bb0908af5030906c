"""Add up what the nox sessions did, as the last line of the log: ``N passed, N failed``.

A test counts one; so does a session without tests of its own. Whatever died counts as failed.
What failed is named before that line, for those who see the end of the log alone.
Usage: tally.py STATUS, the exit status of the test command. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

BUILD = Path(__file__).resolve().parents[1] / "build"
LINES = 20  # of what a failed test says
LAST = 60  # of the log, where a session failed without a failed test


def count_tests(session: str) -> tuple[int, int]:
    """Passed and failed in the JUnit files of a session."""
    passed = failed = 0
    for report in (BUILD / "results" / session).rglob("*.xml"):
        try:
            cases = list(ElementTree.parse(report).iter("testcase"))
        except ElementTree.ParseError:  # cut off while it was written
            failed += 1
            continue
        for case in cases:
            outcomes = {child.tag for child in case}
            if outcomes & {"failure", "error"}:
                failed += 1
                describe(session, case)
            elif "skipped" not in outcomes:
                passed += 1
    return passed, failed


def describe(session: str, case: ElementTree.Element) -> None:
    name = f"{case.get('classname', '')}: {case.get('name', '')}"
    print(f"FAILED in {session}: {name}")
    for child in case:
        if child.tag in {"failure", "error"}:
            said = (child.get("message"), child.text)
            text = "\n".join(part for part in said if part and part != "None").strip()
            print("    " + "\n    ".join(text.splitlines()[:LINES]))


def show_end(session: str | None = None) -> None:
    """Print the last lines of the log: those of a session, or those of all."""
    try:
        log = Path(BUILD, "test.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if session is not None:
        begin = f"nox > Running session {session}\n"
        log = begin + log.partition(begin)[2].partition("nox > Running session ")[0]
    print("    " + "\n    ".join(line[:300] for line in log.splitlines()[-LAST:]))


def count_session(session: dict[str, object]) -> tuple[int, int]:
    signatures, result = session["signatures"], session["result"]
    if result == "skipped":
        return 0, 0
    passed, failed = count_tests(signatures[0])
    if result != "success":
        print(f"FAILED: session {signatures[0]}")
        if not failed:  # it died between two tests, or before the first
            show_end(signatures[0])
        return passed, max(failed, 1)
    return (passed, failed) if passed + failed else (1, 0)


def count_all() -> tuple[int, int]:
    try:
        report = json.loads((BUILD / "nox-report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # nox died, or never started
        show_end()
        return 0, 1
    counts = [count_session(session) for session in report["sessions"]]
    return sum(passed for passed, _ in counts), sum(failed for _, failed in counts)


def main(status: int) -> int:
    passed, failed = count_all()
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
