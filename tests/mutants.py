"""Whether the scenarios of the core detect its defects: one at a time, by seed, with cosmic-ray.

    python tests/mutants.py [--seed N] [--count N] [MODULE...]

Of each module `count` places are taken at random, and at each one a mutant. A mutant that no
scenario fails on has survived: a scenario is missing, or the mutant changes nothing, and the table
in docs/mutants.md says why; those in the table are not counted. Beside cosmic-ray's own operators,
statements are left out: that is how cleanup gets lost. Each worker has a copy of the tree, so that
the original is never touched.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
import parso
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.operators.operator import Operator
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src", "rxlanggraph")
# The modules of the core, and the features that look at each, the closest first.
MODULES = {
    "registry.py": "registry/registry registry/contract bridge/fork",
    "bridge/scheduler.py": "bridge/runs bridge/run_threads",
    "bridge/admission.py": "bridge/back_pressure bridge/nested_runs bridge/runs",
    "bridge/inbox.py": "bridge/handoff bridge/handoff_loops bridge/handoff_entering bridge/fork",
    "bridge/run.py": "bridge/runs bridge/run_contexts bridge/retrying bridge/fork",
    "bridge/engine.py": "bridge/runs bridge/handoff_loops bridge/back_pressure bridge/fork",
    "bridge/loops.py": "bridge/handoff_loops bridge/loop_pauses bridge/several_bridges",
    "bridge/bridge.py": "bridge/lifecycle bridge/run_arguments",
    "bridge/shutdown.py": "bridge/cleanup",
    "concurrency/future.py": "bridge/futures bridge/awaiting bridge/fork",
    "bridge/executor.py": "bridge/worker_threads bridge/several_bridges",
    "rx/serialized_observer.py": "rx/contract",
    "bridge/operators/invoke.py": "rx/contract bridge/stages bridge/back_pressure",
}
# What all of them are run against, besides: the quick features of the core.
CORE = (
    "registry/registry bridge/handoff bridge/futures bridge/runs bridge/cleanup rx/contract "
    "bridge/back_pressure bridge/retrying bridge/run_threads bridge/run_contexts "
    "bridge/worker_threads bridge/loop_pauses bridge/several_bridges bridge/user_exceptions "
    "bridge/stages bridge/awaiting bridge/kept bridge/threads bridge/run_arguments "
    "bridge/nested_runs bridge/loop_ends bridge/lifecycle"
)
WORKERS = 2
ENOUGH = 0.9
# Of annotations, which nobody evaluates; of decorators, which are properties and contexts; of what
# is compared by identity for plainness: None, members of enums, objects without an equality.
MEANINGLESS = (
    "core/ReplaceBinaryOperator_BitOr",
    "core/RemoveDecorator",
    "core/ReplaceComparisonOperator_Is_Eq",
    "core/ReplaceComparisonOperator_IsNot_NotEq",
)


class LeaveOut(Operator):
    """Leave out a call whose result is not used, a `del`, or what is assigned to an attribute."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if node.type == "simple_stmt" and self._can_go(node.children[0]):
            yield node.start_pos, node.end_pos

    @staticmethod
    def _can_go(statement: Any) -> bool:
        if statement.type == "expr_stmt":  # an attribute, or an item: a name would be missed
            return statement.children[0].type == "atom_expr"
        return statement.type in {"atom_expr", "await_expr", "del_stmt"}

    def mutate(self, node: Any, index: int) -> Any:
        nothing = parso.parse("pass").children[0]
        nothing.prefix = node.get_first_leaf().prefix
        nothing.parent = node
        node.children[0] = nothing
        return node

    @classmethod
    def examples(cls) -> Iterable[Any]:
        return ()


cosmic_ray.plugins.OPERATOR_PROVIDERS["rxlanggraph"] = {"LeaveOut": LeaveOut}


@dataclass(frozen=True)
class Mutant:
    module: str
    spec: MutationSpec

    @property
    def text(self) -> str:
        name = self.spec.operator_name.partition("/")[2]
        return f"{self.module}:{self.spec.start_pos[0]} {self.spec.definition_name}: {name}"


def sample(module: str, seed: int, wanted: int) -> list[Mutant]:
    """One mutant at each of so many places, the same for the same seed and source."""
    places: dict[Any, list[MutationSpec]] = defaultdict(list)
    for item in _all_work_items([ROOT / PACKAGE / module], {}):
        (spec,) = item.mutations
        if not spec.operator_name.startswith(MEANINGLESS):
            places[spec.start_pos, spec.end_pos].append(spec)
    chance = random.Random(f"{seed} {module}")
    chosen = chance.sample(sorted(places), min(wanted, len(places)))
    return [Mutant(module, chance.choice(places[place])) for place in sorted(chosen)]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    killed_by: str | None  # None if it survived
    diff: str

    @property
    def line(self) -> str:
        """The line that was changed, as it was."""
        changed = re.search(r"^-(?!--)(.*)$", self.diff, re.MULTILINE)
        return "" if changed is None else changed[1].strip()


def without_effect() -> set[tuple[str, ...]]:
    """Return the survivors that docs/mutants.md explains: module, function, line and defect."""
    rows = re.findall(r"^\| `.*", Path(ROOT, "docs/mutants.md").read_text("utf-8"), re.MULTILINE)
    return {tuple(re.findall(r"`([^`]+)`", row.replace(r"\|", "|"))[:4]) for row in rows}


# -- in a worker -----------------------------------------------------------------------------------


def move_in(elsewhere: str, numbers: Any) -> None:
    home = Path(elsewhere, str(numbers.get()))
    for folder in ("src", "features", "docs", "examples"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, home / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, home)
    os.chdir(home)
    os.environ["PYTHONPATH"] = str(home / "src")


def command_for(*modules: str) -> list[str]:
    names = dict.fromkeys([*" ".join(MODULES[module] for module in modules).split(), *CORE.split()])
    options = ("--stop", "--format=null", "--no-skipped", "--tags=not @explored")
    features = [f"features/{name}.feature" for name in names]
    return [sys.executable, "-m", "behave", *options, *features]


def unharmed(modules: list[str]) -> float:
    """Run the scenarios without a mutant; return how many seconds that took."""
    began = time.monotonic()
    done = subprocess.run(command_for(*modules), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the scenarios fail without a mutant:\n{done.stdout[-3000:]}")
    return time.monotonic() - began


def judge(mutant: Mutant, *, limit: float) -> Verdict:
    """Run the scenarios against a mutant, until the first that fails."""
    spec = mutant.spec
    there = MutationSpec(
        module_path=Path(PACKAGE, mutant.module),
        operator_name=spec.operator_name,
        operator_args=spec.operator_args,
        occurrence=spec.occurrence,
        start_pos=spec.start_pos,
        end_pos=spec.end_pos,
        definition_name=spec.definition_name,
    )
    result = mutate_and_test([there], shlex.join(command_for(mutant.module)), limit)
    if result.test_outcome is TestOutcome.INCOMPETENT:
        raise RuntimeError(result.output)
    if result.test_outcome is TestOutcome.SURVIVED:
        return Verdict(None, result.diff)
    return Verdict(cause(result.output), result.diff)


def cause(output: str) -> str:
    """Return what killed a mutant, so that a busy machine is not taken for a scenario."""
    if output == "timeout":  # cosmic-ray's own word for it
        return "the time limit"
    named = re.search(r"^(?:Failing|Errored) scenarios:\n\s*(.+)$", output, re.MULTILINE)
    return named[1] if named else "the end of the process, before any scenario failed"


# -- all of them -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10, help="mutants of each module")
    parser.add_argument("modules", nargs="*", help="of the core; all by default")
    options = parser.parse_args()
    modules = options.modules or list(MODULES)
    with tempfile.TemporaryDirectory() as elsewhere:
        context = get_context("spawn")
        numbers = context.Manager().Queue()
        for number in range(WORKERS):
            numbers.put(number)
        with ProcessPoolExecutor(WORKERS, context, move_in, (elsewhere, numbers)) as workers:
            limit = 2 * workers.submit(unharmed, modules).result() + 20
            mutants = [it for name in modules for it in sample(name, options.seed, options.count)]
            ended = workers.map(partial(judge, limit=limit), mutants)
            return report(modules, mutants, ended)


def report(modules: list[str], mutants: list[Mutant], verdicts: Iterable[Verdict]) -> int:
    survivors: dict[str, list[str]] = {module: [] for module in modules}
    known, explained = without_effect(), 0
    for number, mutant, verdict in zip(count(1), mutants, verdicts, strict=False):
        fate = f"killed by {verdict.killed_by}"
        if verdict.killed_by is None:
            name, defect = mutant.spec.definition_name, mutant.spec.operator_name.partition("/")[2]
            if (mutant.module, name, verdict.line, defect) in known:
                fate = "survived, as explained in docs/mutants.md"
                explained += 1
            else:
                fate = "survived"
                survivors[mutant.module].append(f"{mutant.text}\n{verdict.diff}")
        print(f"{number}/{len(mutants)} {mutant.text}: {fate}", flush=True)
    for text in [text for lived in survivors.values() for text in lived]:
        print(f"\nSURVIVED {text}")
    counted = len(mutants) - explained
    killed = counted - sum(map(len, survivors.values()))
    print(f"\n{explained} have no effect, as docs/mutants.md explains", end="; ")
    print(f"of the other {counted}, {killed} were killed; {ENOUGH:.0%} are wanted")
    return 0 if killed >= ENOUGH * counted else 1


if __name__ == "__main__":
    sys.exit(main())
