"""Whether the scenarios of the core detect its defects: one at a time, by seed, with cosmic-ray.

    python tests/mutants.py [--seed N] [--count N] [--workers N] [MODULE...]

Of each module `count` places are taken at random, and at each one a mutant. A mutant that no
scenario fails on has survived: a scenario is missing, or the mutant changes nothing, and the table
in docs/mutants.md says why; those in the table are not run. Beside cosmic-ray's own operators,
statements are left out: that is how cleanup gets lost. Each worker has a copy of the tree, so that
the original is never touched.

A scenario kills a mutant if it fails, fails again when it runs alone, and passes alone without the
mutant. So what fails on a busy machine, or now and then, kills nothing; a scenario that does not
end within a time limit has failed, under the same three conditions.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import difflib
import importlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
import parso
from behave.configuration import Configuration
from behave.formatter._registry import make_formatters
from behave.parser import parse_file
from behave.runner import Context, Runner
from behave.runner_util import collect_feature_locations, parse_features
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.operators.operator import Operator
from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src", "rxlanggraph")
# The modules of the core, and the features that look at each, the closest first.
MODULES = {
    "registry.py": "registry/registry registry/contract bridge/fork",
    "bridge/scheduler.py": "bridge/runs bridge/run_threads bridge/thread_policies",
    "bridge/admission.py": "bridge/back_pressure bridge/overflow bridge/submit bridge/nested_runs",
    "bridge/inbox.py": "bridge/handoff bridge/handoff_loops bridge/handoff_entering bridge/fork",
    "bridge/run_options.py": "bridge/run_arguments bridge/run_threads bridge/runs",
    "bridge/run.py": "bridge/runs bridge/run_contexts bridge/retrying bridge/fork",
    "bridge/engine.py": "bridge/runs bridge/handoff_loops bridge/back_pressure bridge/fork",
    "bridge/dispatcher.py": "bridge/runs bridge/thread_policies bridge/handoff_loops "
    "bridge/back_pressure bridge/draining bridge/lanes",
    "bridge/execution.py": "bridge/runs bridge/time_limits bridge/retrying bridge/user_exceptions "
    "limits/model_limits",
    "bridge/loops.py": "bridge/handoff_loops bridge/loop_pauses bridge/several_bridges bridge/fork",
    "bridge/bridge.py": "bridge/run_arguments bridge/rollback bridge/stream bridge/astream",
    "bridge/shutdown.py": "bridge/cleanup bridge/draining bridge/lifecycle",
    "concurrency/future.py": "bridge/futures bridge/awaiting bridge/fork",
    "bridge/run_threads.py": "bridge/worker_threads bridge/several_bridges",
    "rx/serialized_observer.py": "rx/contract bridge/stream",
    "bridge/operators/subscription.py": (
        "rx/contract bridge/stages bridge/back_pressure rx/operators bridge/observables_in_nodes"
    ),
    "bridge/multitasking.py": "bridge/thread_policies bridge/rollback rx/operators",
    "bridge/graphs/rollback.py": "bridge/rollback",
    "bridge/graphs/interrupts.py": "bridge/interrupts",
    "bridge/graphs/pending.py": "bridge/interrupts",
    "bridge/chunks.py": "bridge/stream bridge/astream bridge/stream_pacing bridge/time_limits",
    "bridge/chunk_window.py": "bridge/astream",
    "bridge/pacing.py": "bridge/stream_pacing",
    "bridge/overflow.py": "bridge/overflow",
    "bridge/time_limits.py": "bridge/time_limits",
    "bridge/graphs/attempts.py": "bridge/retrying bridge/interrupts",
    "bridge/graphs/call_arguments.py": "bridge/langgraph_arguments bridge/run_arguments",
    "bridge/graphs/configs.py": (
        "bridge/run_arguments bridge/langgraph_arguments bridge/run_threads"
    ),
    "bridge/operators/stream.py": "bridge/stream bridge/astream",
    "bridge/operators/pull.py": "bridge/pull",
    "bridge/operators/on_loop.py": "bridge/awaiting bridge/stream",
    "bridge/operators/async_iterable.py": "bridge/observables_in_nodes",
    "bridge/operators/awaited.py": "bridge/observables_in_nodes",
    "bridge/operators/readers.py": "bridge/observables_in_nodes bridge/stream_pacing",
    "bridge/graphs/adapters.py": "bridge/runs bridge/run_arguments bridge/langgraph_arguments "
    "bridge/run_threads",
    "bridge/deadlocks.py": "bridge/nested_runs bridge/observables_in_nodes bridge/astream",
    "langgraph_tasks.py": "bridge/thread_policies bridge/retrying bridge/rollback",
    "bridge/graph_loops.py": "bridge/graph_loops",
    "bridge/task_waits.py": "bridge/nested_runs bridge/observables_in_nodes",
    "bridge/exits.py": "bridge/lifecycle",
    "bridge/run_registry.py": "bridge/cleanup bridge/looking_inside bridge/nested_runs",
    "bridge/run_info.py": "bridge/looking_inside",
    "bridge/draining.py": "bridge/draining",
    "bridge/graphs/drain_control.py": "bridge/draining",
    "bridge/lanes.py": "bridge/lanes",
    "bridge/fenced_saver.py": "bridge/lanes",
    "bridge/hook_calls.py": "bridge/hooks",
    "bridge/listeners.py": "bridge/hooks bridge/blocked_loop",
    "bridge/reports.py": "bridge/hooks bridge/blocked_loop",
    "bridge/callbacks.py": "bridge/hooks",
    "bridge/graphs/tracebacks.py": "bridge/kept bridge/user_exceptions",
}
# What all of them are run against, besides: the quick features of the core.
CORE = (
    "registry/registry bridge/handoff bridge/futures bridge/runs bridge/cleanup rx/contract "
    "bridge/back_pressure bridge/retrying bridge/run_threads bridge/run_contexts "
    "bridge/worker_threads bridge/loop_pauses bridge/several_bridges bridge/user_exceptions "
    "bridge/stages bridge/awaiting bridge/kept bridge/threads bridge/run_arguments "
    "bridge/nested_runs bridge/loop_ends bridge/lifecycle bridge/thread_policies bridge/overflow "
    "bridge/submit bridge/time_limits bridge/stream bridge/astream bridge/stream_pacing "
    "bridge/interrupts bridge/rollback bridge/pull rx/operators "
    "bridge/observables_in_nodes bridge/looking_inside "
    "bridge/draining bridge/langgraph_arguments bridge/hooks bridge/blocked_loop bridge/graph_loops"
)
# Those that take longest, and are run last.
SLOW = ("bridge/handoff_entering", "bridge/lanes", "bridge/fork")
# The steps of these features. Those of the others are left out: what they import takes longer than
# most mutants live.
STEPS = ("bridge", "limits", "registry", "rx", "shared")
# What the scenarios import, and takes long: once, and then a process is forked for each mutant. It
# imports the package and the steps.
PRELOADED = (
    "langchain.agents",
    "langgraph.checkpoint.postgres.aio",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.prebuilt",
    "reactivex.operators",
    "redis.asyncio",
    "rich.console",
    "tenacity",
    "unittest.mock",
    "uvloop",
    "valkey",
)
# Seconds of one scenario. None that passes takes a tenth of it on an idle machine.
DEADLINE = 30
# Seconds of all scenarios. A guess, for processes that do not end.
LIMIT = 1800
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

    @property
    def row(self) -> tuple[str, ...]:
        """How docs/mutants.md names it: by module, function, line and defect."""
        lines = Path(ROOT, PACKAGE, self.module).read_text("utf-8").splitlines()
        line, defect = self.spec.start_pos[0] - 1, self.spec.operator_name.partition("/")[2]
        return self.module, str(self.spec.definition_name), lines[line].strip(), defect

    @property
    def operator(self) -> Operator:
        return cosmic_ray.plugins.get_operator(self.spec.operator_name)(**self.spec.operator_args)


def sample(module: str, seed: int, wanted: int) -> list[Mutant]:
    """One mutant at each of so many places, the same for the same seed and source."""
    places: dict[Any, list[MutationSpec]] = defaultdict(list)
    for spec in specs(module):
        places[spec.start_pos, spec.end_pos].append(spec)
    chance = random.Random(f"{seed} {module}")
    chosen = chance.sample(sorted(places), min(wanted, len(places)))
    mutants = [Mutant(module, chance.choice(places[place])) for place in sorted(chosen)]
    return [each for each in mutants if has_meaning(each)]


def specs(module: str) -> Iterator[MutationSpec]:
    for item in _all_work_items([ROOT / PACKAGE / module], {}):
        (spec,) = item.mutations
        if not spec.operator_name.startswith(MEANINGLESS):
            yield spec


def has_meaning(mutant: Mutant) -> bool:
    """Whether it can be made, and compiled (a changed `*` cannot), and is not about slots."""
    source = Path(ROOT, PACKAGE, mutant.module).read_text("utf-8")
    line, column = mutant.spec.start_pos
    if source.splitlines()[line - 1][:column].endswith("slots="):
        return False
    try:
        changed = mutate_code(source, mutant.operator, mutant.spec.occurrence)
    except AttributeError:  # cosmic-ray cannot replace a dotted name in a tuple of exceptions
        return False
    with warnings.catch_warnings(action="error"):  # `is` beside a literal
        try:
            compile(changed, mutant.module, "exec")
        except (SyntaxError, SyntaxWarning):
            return False
    return True


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    killed_by: str | None  # None if it survived
    once: list[str]  # the scenarios that failed and do not count
    diff: str


def explained() -> set[tuple[str, ...]]:
    """Return the `row` of each survivor that docs/mutants.md explains."""
    rows = re.findall(r"^\| `.*", Path(ROOT, "docs/mutants.md").read_text("utf-8"), re.MULTILINE)
    return {tuple(re.findall(r"`([^`]+)`", row.replace(r"\|", "|"))[:4]) for row in rows}


def outdated() -> set[tuple[str, ...]]:
    """Return the rows of docs/mutants.md whose mutant does not exist: the code has changed."""
    modules = {row[0] for row in explained()} & set(MODULES)
    return explained() - {Mutant(it, spec).row for it in modules for spec in specs(it)}


# -- in a worker -----------------------------------------------------------------------------------


def move_in(elsewhere: str, numbers: Any) -> None:
    home = Path(elsewhere, str(numbers.get()))
    for folder in ("src", "features", "docs", "examples"):
        shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, home)
    for folder in Path(home, "features", "steps").iterdir():
        if folder.name not in STEPS:
            shutil.rmtree(folder)
    os.chdir(home)
    compileall.compile_dir(".", quiet=2)  # once, instead of in each process
    os.environ["PYTHONPATH"] = str(home / "src")
    os.environ["RXLANGGRAPH_SCENARIO_DEADLINE"] = str(DEADLINE)
    sys.path[:0] = [str(home), str(home / "src")]
    sys.dont_write_bytecode = True
    for module in PRELOADED:
        importlib.import_module(module)


NO_SCENARIO = "the first import"


class Harness:
    """A process that has imported the package and the steps, and forks for each run of them."""

    def __init__(self) -> None:
        self._requests, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._requests.close()
                serve(theirs)
            finally:
                os._exit(1)
        theirs.close()
        with contextlib.suppress(EOFError):  # it cannot be imported
            self._requests.recv()  # until then it reads the source

    def failure(self, *places: str) -> str | None:
        """Run scenarios until the first that fails; return its place, or None if all pass."""
        try:
            self._requests.send(places)
            output = self._requests.recv()
        except (EOFError, OSError):
            return NO_SCENARIO
        if output is None:
            return None
        named = re.search(r"^(?:Failing|Errored) scenarios:\n\s*(\S+)", output, re.MULTILINE)
        begun = re.findall(r"^ +Scenario.* # (features/\S+:\d+)$", output, re.MULTILINE)
        return named[1] if named else begun[-1] if begun else NO_SCENARIO

    def close(self) -> None:
        self._requests.close()
        os.waitpid(self._pid, 0)


def serve(requests: Any) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, sys.stdout.fileno())
    os.dup2(nothing, sys.stderr.fileno())
    options = ["--stop", "--format=pretty", "--no-color", "--no-skipped"]
    runner = Runner(
        Configuration([*options, "--tags=not (@explored or @long or @postgresql or @valkey)"])
    )
    with runner.path_manager, contextlib.suppress(EOFError):
        runner.setup_paths()
        runner.context = Context(runner)
        runner.load_hooks()
        runner.load_step_definitions()
        requests.send("ready")
        while True:
            places = requests.recv()
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                run = partial(run_features, runner, places, output.fileno())
                process = get_context("fork").Process(target=run)
                process.start()
                process.join(LIMIT)
                with contextlib.suppress(ProcessLookupError):  # also what a scenario has started
                    os.killpg(process.pid, signal.SIGKILL)
                process.join()
                output.seek(0)
                requests.send(None if process.exitcode == 0 else output.read())


def run_features(runner: Runner, places: Sequence[str], output: int) -> None:
    os.setsid()
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    runner.features.extend(parse_features(collect_feature_locations(places)))
    runner.formatters = make_formatters(runner.config, runner.config.outputs)
    sys.exit(bool(runner.run_model()))


def features_for(module: str, *, closest: bool) -> list[str]:
    names = dict.fromkeys([*MODULES[module].split(), *("" if closest else CORE).split()])
    return [f"features/{name}.feature" for name in sorted(names, key=SLOW.__contains__)]


def after(place: str, places: list[str]) -> list[str]:
    """Return what of `places` is still to be run after the scenario at `place`."""
    feature, _, line = place.partition(":")
    index = next(i for i, each in enumerate(places) if each.partition(":")[0] == feature)
    lines = [each.line for each in parse_file(feature).walk_scenarios()]
    rest = [f"{feature}:{each}" for each in lines if each > int(line)]
    return rest + [each for each in places[index:] if each.partition(":")[0] != feature]


@cache
def unharmed() -> Harness:
    return Harness()


@cache
def passes_unharmed(place: str) -> bool:
    return unharmed().failure(place) is None


def judge(mutant: Mutant, *, closest: bool) -> Verdict:
    """Run the scenarios against a mutant, until one has killed it."""
    unharmed()  # it imports what is not mutated
    path = Path(PACKAGE, mutant.module)
    with use_mutation(path, mutant.operator, mutant.spec.occurrence) as (original, mutated):
        changes = difflib.unified_diff(original.split("\n"), mutated.split("\n"), lineterm="")

        def is_sound(place: str) -> bool:
            path.write_text(original, "utf-8")  # processes that a scenario starts import it
            try:
                return passes_unharmed(place)
            finally:
                path.write_text(mutated, "utf-8")

        with contextlib.closing(Harness()) as harness:
            places = features_for(mutant.module, closest=closest)
            killed_by, once = killer(harness, places, is_sound)
    return Verdict(killed_by, once, "\n".join(changes))


def killer(
    harness: Harness, places: list[str], is_sound: Callable[[str], bool]
) -> tuple[str | None, list[str]]:
    """Return the place of the scenario that kills a mutant, and of those that failed once."""
    once: list[str] = []
    while places:
        failed = harness.failure(*places)
        if failed is None:
            break
        alone = places[0] if failed == NO_SCENARIO else failed
        if harness.failure(alone) is not None and is_sound(alone):
            return failed, once
        once.append(failed)
        places = after(alone, places)
    return None, once


# -- all of them -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10, help="mutants of each module")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument("--closest", action="store_true", help="a module's own features alone")
    parser.add_argument("modules", nargs="*", help="of the core; all by default")
    options = parser.parse_args()
    if rows := outdated():
        parser.error(f"no mutant is named by these rows of docs/mutants.md: {sorted(rows)}")
    modules = options.modules or list(MODULES)
    found = [it for name in modules for it in sample(name, options.seed, options.count)]
    mutants = [each for each in found if each.row not in explained()]
    print(f"{len(found) - len(mutants)} of {len(found)} have no effect: see docs/mutants.md")
    with tempfile.TemporaryDirectory() as elsewhere:
        context = get_context("spawn")
        numbers = context.Manager().Queue()
        for number in range(options.workers):
            numbers.put(number)
        with ProcessPoolExecutor(options.workers, context, move_in, (elsewhere, numbers)) as pool:
            judged = pool.map(partial(judge, closest=options.closest), mutants)
            return report(mutants, judged)


def report(mutants: list[Mutant], verdicts: Iterable[Verdict]) -> int:
    fates: dict[str, Counter[str]] = {each.module: Counter() for each in mutants}
    for number, (mutant, verdict) in enumerate(zip(mutants, verdicts, strict=True), 1):
        lived = verdict.killed_by is None
        fate = f"survived\n{verdict.diff}\n" if lived else f"killed by {verdict.killed_by}"
        fates[mutant.module]["survived" if lived else "killed"] += 1
        print(f"{number}/{len(mutants)} {mutant.text}: {fate}", flush=True)
        for place in verdict.once:
            print(f"    {place} failed once, or without the mutant too: not counted", flush=True)
    print()
    for module, each in fates.items():
        print(f"{module}: {each['killed']} of {each.total()}")
    killed = sum(each["killed"] for each in fates.values())
    print(f"\nOf {len(mutants)}, {killed} were killed; {ENOUGH:.0%} are wanted")
    return 0 if killed >= ENOUGH * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
