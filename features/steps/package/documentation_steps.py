"""Steps that read the sources of the documentation site, and what a page would load."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from behave import given, then, when
from behave.runner import Context
from tests.offline_pages import loaded_from_elsewhere

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def pages(*without: str) -> dict[str, str]:
    """The pages below docs, by their name in a table of contents."""
    found = [path for path in DOCS.rglob("*.*") if path.suffix in (".md", ".rst")]
    return {
        path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in found
        if path.name not in without
    }


def in_reference(text: str) -> Iterator[object]:
    """What the directives of a page of the reference document."""
    module = ""
    for directive, name in re.findall(
        r"^ *\.\. (py:module|auto\w+):: ([\w.]+)", text, re.MULTILINE
    ):
        if directive == "py:module":
            module = name
        elif directive != "automethod":
            yield pkgutil.resolve_name(name if "." in name else f"{module}.{name}")


def missing(module: str, documented: dict[str, str]) -> set[str]:
    """The names that the module exports, and no page of the reference has."""
    texts = [text for name, text in documented.items() if name.startswith("reference/")]
    known = {id(thing) for text in texts for thing in in_reference(text)}
    exported = importlib.import_module(module)
    return {name for name in exported.__all__ if id(getattr(exported, name)) not in known}


@then("the reference has each name that these modules export, but for the internal ones")
def step_the_reference_has_each_name_that_these_modules_export(context: Context) -> None:
    context.modules = {row["module"]: set(row["internal"].split()) for row in context.table}
    lacking = {module: missing(module, pages()) for module in context.modules}
    assert lacking == context.modules, lacking


@then("the README and the documents import from no other module of the package")
def step_the_readme_and_the_documents_import_from_no_other_module(context: Context) -> None:
    texts = [(ROOT / "README.md").read_text(encoding="utf-8"), *pages().values()]
    imported = {
        name
        for text in texts
        for name in re.findall(r"^ *(?:from|import) (rxlanggraph[\w.]*)", text, re.MULTILINE)
    }
    assert "rxlanggraph" in imported
    assert imported <= set(context.modules), imported - set(context.modules)


@given("the reference without its page {page}")
def step_the_reference_without_its_page(context: Context, page: str) -> None:
    context.pages = pages(page)


@then("it lacks {one:w} and {other:w} of {module}")
def step_it_lacks_one_and_other_of_module(
    context: Context, one: str, other: str, module: str
) -> None:
    assert {one, other} <= missing(module, context.pages)


def contents(name: str, text: str) -> Iterator[str]:
    """The pages in the tables of contents of the page ``name``."""
    folder = name.rpartition("/")[0]
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line and not line.startswith(":"))
    for block in re.findall(r"^\.\. toctree::\n((?:\n| +.*\n)+)", text, re.MULTILINE):
        for line in filter(None, map(str.strip, block.splitlines())):
            if not line.startswith(":"):
                yield f"{folder}/{line}"


@then("each page below docs is in exactly one table of contents, {count:d} or more of them")
def step_each_page_below_docs_is_in_exactly_one_table_of_contents(
    context: Context, count: int
) -> None:
    listed = [entry for name, text in pages().items() for entry in contents(name, text)]
    assert len(listed) >= count, listed
    assert sorted(listed) == sorted(set(pages()) - {"index"}), set(pages()) ^ set(listed)


@then(
    "tests/mutants.py has modules of the package with features of each, {count:d} or more of them"
)
def step_tests_mutants_has_modules_of_the_package(context: Context, count: int) -> None:
    # Read, not imported: what it imports is not installed here.
    tree = ast.parse((ROOT / "tests" / "mutants.py").read_text(encoding="utf-8"))
    named = {ast.unparse(it.targets[0]): it.value for it in tree.body if isinstance(it, ast.Assign)}
    features = ast.literal_eval(named["MODULES"])
    context.sources = {module: ROOT / "src" / "rxlanggraph" / module for module in features}
    of_all = " ".join([*features.values(), ast.literal_eval(named["CORE"])]).split()
    paths = [*context.sources.values(), *(ROOT / f"features/{name}.feature" for name in of_all)]
    assert len(context.sources) >= count
    assert [path for path in paths if not path.is_file()] == []


@then(
    "each row of docs/mutants.md names a line in a function of these modules, {count:d} or more of "
    "them"
)
def step_each_row_of_mutants_names_a_line_in_a_function(context: Context, count: int) -> None:
    table = re.findall(r"^\| `.*", pages()["mutants"].replace(r"\|", "|"), re.MULTILINE)
    rows = [re.findall(r"`([^`]+)`", row)[:3] for row in table]
    wrong = [row for row in rows if not has_line(context.sources[row[0]], *row[1:])]
    assert len(rows) >= count
    assert wrong == [], wrong


def has_line(source: Path, name: str, line: str) -> bool:
    """Whether a function or class of this name has the line."""
    text = source.read_text(encoding="utf-8")
    lines = text.splitlines()
    return any(
        line in map(str.strip, lines[it.lineno - 1 : it.end_lineno])
        for it in ast.walk(ast.parse(text))
        if isinstance(it, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and it.name == name
    )


@when("a page of the site has this content: {content}")
def step_a_page_of_the_site_has_this_content(context: Context, content: str) -> None:
    context.loaded = loaded_from_elsewhere("page.html", content)


@then("it is reported to load {address:S}")
def step_it_is_reported_to_load(context: Context, address: str) -> None:
    assert context.loaded == [address], context.loaded


@then("it is reported to load nothing from elsewhere")
def step_it_is_reported_to_load_nothing_from_elsewhere(context: Context) -> None:
    assert context.loaded == [], context.loaded


@then(
    "the figures for the plots have their claim, and values within their ranges, {count:d} or more "
    "of them"
)
def step_the_figures_for_the_plots_have_their_claim(context: Context, count: int) -> None:
    context.measured = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    figures = context.measured["figures"]
    assert len({(each["claim"], each["what"]) for each in figures}) == len(figures) >= count
    wrong = [each for each in figures if not 0 <= each["low"] <= each["value"] <= each["high"]]
    assert wrong == [], wrong


@then("their machine is named by its cpu, num_cpu, arch, ram and os alone")
def step_their_machine_is_named_by_its_cpu(context: Context) -> None:
    assert set(context.measured["machine"]) == {"cpu", "num_cpu", "arch", "ram", "os"}
    assert set(context.measured) == {"machine", "python", "quick", "figures"}
