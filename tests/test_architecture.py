"""Reads the imports of every module and proves the house's order: downwards only, and each thing in its place."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPS = ("desk", "notify", "receipts", "portal")

#: A module may import those above it. Packages stand under their own name; ``backends`` has an order of its own.
ORDER = {
    "desk": [
        "parts",
        "conf",
        "encoding",
        "fields",
        "models",
        "tenants",
        "tokens",
        "problems",
        "filters",
        "keyset",
        "counts",
        "windows",
        "charts",
        "panels",
        "acts",
        "groups",
        "members",
        "admins",
        "resources",
        "backends",
        "doors",
        "measures",
        "health",
        "metrics",
        "api",
        "urls",
        "users",
        "middleware",
        "launching",
        "frames",
        "templatetags",
        "checks",
        "pages",
        "admin",
        "apps",
        "management",
        "migrations",
    ],
    "notify": [
        "conf",
        "errors",
        "texts",
        "wording",
        "addresses",
        "fields",
        "querysets",
        "models",
        "backends",
        "steps",
        "subjects",
        "reading",
        "rendering",
        "checks",
        "bodies",
        "rows",
        "ledger",
        "locks",
        "passes",
        "adoption",
        "transports",
        "mail_checks",
        "schedule",
        "channels",
        "suppressions",
        "letters",
        "outcomes",
        "reports",
        "flights",
        "settling",
        "drafts",
        "delivery",
        "sinks",
        "handover",
        "remaking",
        "interventions",
        "todos",
        "adoption",
        "stopping",
        "working",
        "conditions",
        "stories",
        "explain",
        "previews",
        "pages",
        "admin",
        "apps",
        "management",
        "migrations",
    ],
    "receipts": [
        "conf",
        "errors",
        "canonical",
        "verify",
        "extent",
        "sheets",
        "plans",
        "fields",
        "querysets",
        "models",
        "backends",
        "kinds",
        "apply",
        "approvals",
        "previews",
        "reconcile",
        "runs",
        "api",
        "checks",
        "pages",
        "admin",
        "apps",
        "management",
        "migrations",
    ],
    "portal": [
        "models",
        "backends",
        "vocabulary",
        "seeding",
        "notifications",
        "changes",
        "story_notify",
        "story_receipts",
        "demo",
        "checks",
        "pages",
        "admin",
        "apps",
        "management",
        "migrations",
    ],
}
#: Inside ``backends``: the Protocol, what the rooms share, the rooms, which do not know each other, the finder.
ROOM_ORDER = {"base": 0, "generic": 1, "tsql": 1, "sqlite": 2, "postgresql": 2, "microsoft": 2, "__init__": 3}
#: Which apps an app may import.
KNOWN_APPS = {
    "desk": set(),
    "notify": {"desk"},
    "receipts": {"desk"},
    "portal": {"desk", "notify", "receipts"},
    "config": set(),
}
#: Where a module ends; those of the tests and of the benchmarks as well.
LINES_MAX = 400
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


def upward_imports(app: str, path: Path, source: str | None = None) -> list[str]:
    """Return the imports of a module that go up, or sideways, within its app."""
    order = ORDER[app]
    me = path.relative_to(ROOT / app).with_suffix("").parts
    if me == ("__init__",):
        return [str(found) for found in imports_of(path, source)]
    wrong = []
    for found in imports_of(path, source):
        parts = found.target.split(".")
        if parts[0] != app:
            continue
        if len(parts) == 1:
            wrong.append(str(found))
        elif parts[1] == me[0]:
            if me[0] == "backends" and not may_see(me[1], parts[2] if len(parts) > 2 else "__init__"):
                wrong.append(str(found))
        elif order.index(parts[1]) >= order.index(me[0]):
            wrong.append(str(found))
    return wrong


def may_see(room: str, other: str) -> bool:
    return ROOM_ORDER[other] < ROOM_ORDER[room]


@pytest.mark.parametrize("app", APPS)
def test_each_module_has_its_place_in_the_order(app):
    there = {path.relative_to(ROOT / app).with_suffix("").parts[0] for path in modules_of(app)} - {"__init__"}

    assert there <= set(ORDER[app]), "give the new module its place in ORDER: what may it know, who may know it?"


@pytest.mark.parametrize("app", APPS)
def test_imports_go_downwards_only(app):
    assert [wrong for path in modules_of(app) for wrong in upward_imports(app, path)] == []


def test_an_upward_import_would_be_found():
    ledger, room = ROOT / "notify" / "ledger.py", ROOT / "notify" / "backends" / "sqlite.py"

    assert upward_imports("notify", ledger, "from .passes import run_pass")
    assert upward_imports("notify", ledger, "from . import passes")
    assert upward_imports("notify", ledger, "def late():\n    import notify.passes")
    assert upward_imports("notify", room, "from .postgresql import now")
    assert not upward_imports("notify", ledger, "from .steps import Step\nfrom .backends import room_for")
    assert not upward_imports(
        "notify", ledger, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .passes import Run"
    )


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
def test_an_engine_runs_without_the_desk(app):
    """Only what draws pages may know it; ``admin`` asks first whether it is installed."""
    knowing = {
        found.importer.relative_to(ROOT / app).with_suffix("").parts[0]
        for path in modules_of(app)
        for found in imports_of(path)
        if found.target.split(".")[0] == "desk"
    }

    assert knowing <= {"pages"}


def test_the_portal_binds_the_engines():
    known = {found.target.split(".")[0] for path in modules_of("portal") for found in imports_of(path)}

    assert "notify" in known


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_imports_inside_an_app_are_relative_and_across_apps_absolute(app):
    wrong = []
    for path in modules_of(app):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{dotted(path)}:{node.lineno} {name}" for name in names if name.split(".")[0] == app]

    assert wrong == []


@pytest.mark.parametrize("app", [*APPS, "config"])
def test_only_the_finder_of_the_rooms_asks_which_database_it_is(app):
    asked = {
        dotted(path)
        for path in modules_of(app)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("vendor", "display_name")
    }

    # A migration chooses its dialect when it runs; it cannot ask a room that may change after its release. A field is
    # asked by Django for its column on one connection, and stands below the models, which stand below the rooms.
    assert {name for name in asked if ".migrations." not in name} <= {f"{app}.backends.__init__", f"{app}.fields"}


@pytest.mark.parametrize("app", ["notify", "receipts"])
def test_the_rooms_have_the_same_functions_in_the_order_of_the_protocol(app):
    backends = ROOT / app / "backends"
    protocol = next(
        node
        for node in ast.parse((backends / "base.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Room"
    )
    promised = [node.name for node in protocol.body if isinstance(node, ast.FunctionDef)]

    for path in backends.glob("*.py"):
        if path.stem not in ("base", "generic", "tsql", "__init__"):
            defined = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
            assert [name for name in defined if name in promised] == promised, path.name


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
        if path.name == "__init__.py" and path.parent.name != "backends":
            body = ast.parse(path.read_text()).body
            assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom) for node in body), dotted(path)


def is_overgrown(source: str) -> bool:
    return len(source.splitlines()) > LINES_MAX


@pytest.mark.parametrize("package", [*APPS, "config", "tests", "benchmarks"])
def test_no_module_has_grown_beyond_400_lines(package):
    modules = modules_of(package)

    assert modules
    assert [dotted(path) for path in modules if is_overgrown(path.read_text())] == []


def test_the_line_after_the_400th_would_be_found():
    assert not is_overgrown("pass\n" * 400)
    assert is_overgrown("pass\n" * 401)
