"""Reads the imports of every module and proves the house's order: downwards only, and each thing in its place."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPS = ("kwit", "notify", "receipts", "portal")

#: Which apps an app may import.
KNOWN_APPS = {
    "kwit": set(),
    "notify": {"kwit"},
    "receipts": {"kwit"},
    "portal": {"kwit", "notify", "receipts"},
    "config": set(),
}
FORBIDDEN_NAMES = ("utils.py", "services.py", "helpers.py", "signals.py")


@dataclass(frozen=True)
class Import:
    """One import statement of ours: who, where, and which module of ours it reads (as a dotted path)."""

    importer: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.importer.relative_to(ROOT)}:{self.line} imports {self.target}"

    @property
    def importer_dotted(self) -> str:
        return dotted(self.importer)


def dotted(path: Path) -> str:
    """Return the dotted name of a module, with ``__init__`` for a package's own."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules_of(app: str) -> list[Path]:
    return sorted((ROOT / app).rglob("*.py"))


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a module without what stands below ``if TYPE_CHECKING``, which never runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from runtime_nodes(node)


def imports_of(path: Path, source: str | None = None) -> list[Import]:
    """Return a module's imports of our own apps and of ``config``, relative ones resolved."""
    found = []
    package = list(path.relative_to(ROOT).parent.parts)
    for node in runtime_nodes(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            # ``from . import checks`` names a module, ``from .checks import x`` one that is known already.
            targets = [
                f"{module}.{alias.name}" if is_module(f"{module}.{alias.name}") else module for alias in node.names
            ]
        else:
            continue
        found += [
            Import(path, node.lineno, target)
            for target in dict.fromkeys(targets)
            if target.split(".")[0] in (*APPS, "config")
        ]
    return found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_the_engines_know_neither_each_other_nor_the_portal_and_nobody_imports_config(app):
    foreign = [
        str(found)
        for path in modules_of(app)
        for found in imports_of(path)
        if found.target.split(".")[0] not in {app} | KNOWN_APPS[app]
    ]

    assert foreign == []


@pytest.mark.parametrize("app", ["notify", "receipts"])
def test_an_engine_runs_without_the_app_kwit(app):
    """Only what draws pages may know it; ``admin`` asks first whether it is installed."""
    knowing = {
        found.importer.relative_to(ROOT / app).with_suffix("").parts[0]
        for path in modules_of(app)
        for found in imports_of(path)
        if found.target.startswith("kwit.") and not found.target.startswith("kwit.db")
    }

    assert knowing <= {"pages"}


def test_the_portal_binds_the_engines():
    known = {found.target.split(".")[0] for path in modules_of("portal") for found in imports_of(path)}

    assert "notify" in known


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_imports_inside_an_app_are_relative_and_across_apps_absolute(app):
    wrong = []
    for path in [path for path in modules_of(app) if path.parent.name != "migrations"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{dotted(path)}:{node.lineno} {name}" for name in names if name.split(".")[0] == app]

    assert wrong == []


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_only_one_module_asks_which_database_it_is(app):
    asked = {
        dotted(path)
        for path in modules_of(app)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("vendor", "display_name")
    }

    # A migration chooses its dialect when it runs: it cannot ask one that may change after its release.
    assert {name for name in asked if ".migrations." not in name} <= {
        "kwit.db.dialect",
    }


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_no_module_is_called_by_what_it_is_not(app):
    assert [str(path) for path in modules_of(app) if path.name in FORBIDDEN_NAMES] == []


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_there_are_no_signals(app):
    for path in modules_of(app):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert "signals" not in (node.module or ""), f"{dotted(path)}:{node.lineno}"
                assert "receiver" not in [alias.name for alias in node.names], f"{dotted(path)}:{node.lineno}"
            elif isinstance(node, ast.Import):
                assert not any("signals" in alias.name for alias in node.names), f"{dotted(path)}:{node.lineno}"


@pytest.mark.parametrize("app", APPS)
def test_packages_have_no_logic_of_their_own(app):
    for path in modules_of(app):
        if path.name == "__init__.py" and path.parent.name != "dialects":
            body = ast.parse(path.read_text()).body
            assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in body), dotted(
                path
            )
