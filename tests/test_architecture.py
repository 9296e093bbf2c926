"""What the import contracts in ``pyproject.toml`` (``make lint``) cannot say: how each module is written."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPS = ("kwit", "notify", "receipts", "portal")

FORBIDDEN_NAMES = ("utils.py", "services.py", "helpers.py", "signals.py")


def dotted(path: Path) -> str:
    """Return the dotted name of a module, with ``__init__`` for a package's own."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules_of(app: str) -> list[Path]:
    return sorted((ROOT / app).rglob("*.py"))


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
                # django-anymail hands its events on by a signal, and in no other way.
                is_ours = node.module != "anymail.signals"
                assert "signals" not in (node.module or "") or not is_ours, f"{dotted(path)}:{node.lineno}"
                assert "receiver" not in [alias.name for alias in node.names], f"{dotted(path)}:{node.lineno}"
            elif isinstance(node, ast.Import):
                assert not any("signals" in alias.name for alias in node.names), f"{dotted(path)}:{node.lineno}"


@pytest.mark.parametrize("app", APPS)
def test_packages_have_no_logic_of_their_own(app):
    for path in modules_of(app):
        if path.name == "__init__.py" and path.parent.name not in ("dialects", "admin"):
            body = ast.parse(path.read_text()).body
            assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in body), dotted(
                path
            )
