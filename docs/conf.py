"""The documentation site: `nox -s docs` builds it, offline, with every warning an error.

Docstrings name things as their module does: `StreamMessage`, not `rxlanggraph.StreamMessage`, and
`asyncio.wrap_future`, whose inventory would have to be downloaded. What breaks without `resolve`:
each of them would be reported. With it, a name must be in the reference, where it becomes a link,
or in an installed package; any other fails the build.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import pkgutil
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

project = "rxlanggraph"
release = importlib.metadata.version(project)
project_copyright = f"the {project} contributors"

sys.path.append(str(Path(__file__).parent / "_ext"))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "benchmark_plots"]
exclude_patterns = ["_ext"]
default_role = "py:obj"  # single backticks in docstrings
nitpicky = True

myst_heading_anchors = 4  # by the rule of GitHub, where the pages are read, too

autodoc_default_options = {
    "members": True,
    # Not the methods of these and of their bases, which are not part of this package.
    "inherited-members": "BaseException, Enum, Future, object, tuple",
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autoclass_content = "both"
maximum_signature_line_length = 100
napoleon_attr_annotations = False  # the signature of the class has them

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"{project} {release}"
html_copy_source = False
html_show_sphinx = False

# Files beside docs that a page names, and the page of the site that has their text.
OUTSIDE = {
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../README.md": "index.md",
}


def redirect(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Link to the pages of `OUTSIDE`."""
    for path, page in OUTSIDE.items():
        source[0] = source[0].replace(f"]({path}", f"]({page}")


def skip(
    _app: Sphinx, _kind: str, _name: str, thing: object, _skipped: bool, _options: object
) -> bool | None:
    """Leave out the fields of tuples and slots: the "Attributes:" of their class describe them."""
    is_field = inspect.isdatadescriptor(thing) and not isinstance(thing, property)
    return True if is_field else None


def without_builtin_docs(
    _app: Sphinx, kind: str, _name: str, thing: object, _options: object, lines: list[str]
) -> None:
    """Leave out what Python says of every named tuple's constructor, and of a constant's type."""
    lines[:] = [line for line in lines if not line.startswith("Create new instance of ")]
    if kind == "data" and type(thing).__doc__ and lines[0] in type(thing).__doc__:
        lines.clear()


def with_readable_defaults(
    _app: Sphinx,
    _kind: str,
    _name: str,
    _thing: object,
    _options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """Have a default that a dataclass makes as "...": as "<factory>" no signature is understood."""
    return None if signature is None else (signature.replace("<factory>", "..."), returned)


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Find what a short name in a docstring means; None is a warning, and so an error."""
    if node["refdomain"] != "py":
        return None
    target = node["reftarget"]
    places = {
        (entry.docname, entry.node_id)
        for name, entry in objects(env).items()
        if f".{name}".endswith(f".{target}") and not entry.aliased
    }
    if len(places) == 1:
        ((page, anchor),) = places
        return make_refnode(app.builder, node["refdoc"], page, anchor, [content], target)
    if is_annotation(node) or is_elsewhere(target):
        return content
    return None


def objects(env: BuildEnvironment) -> dict[str, ObjectEntry]:
    return env.domains.python_domain.objects


def is_annotation(node: addnodes.pending_xref) -> bool:
    """Whether it is a type, which mypy checks, and no text that napoleon took for one ("None:")."""
    return node["reftype"] == "class" and " " not in node["reftarget"]


def is_elsewhere(name: str) -> bool:
    """Whether it is a name of another package, built-in ones included."""
    try:
        pkgutil.resolve_name(name if "." in name else f"builtins:{name}")
    except (AttributeError, ImportError, ValueError):
        return False
    return not name.startswith(f"{project}.")


def setup(app: Sphinx) -> None:
    app.connect("source-read", redirect)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", without_builtin_docs)
    app.connect("autodoc-process-signature", with_readable_defaults)
    app.connect("missing-reference", resolve)
