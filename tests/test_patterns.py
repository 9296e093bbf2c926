"""Every pattern of the packages takes time in proportion to its text, also for the text it likes least."""

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex

PACKAGES = ("config", "kwit", "notify", "portal", "receipts")
#: Not to be imported here: the settings of the process are those of the tests, and a child limits itself.
LEFT_OUT = ("migrations", "config.settings", "config.accounts", "config.wsgi", "config.asgi", "plans.child")
SHORT, FACTOR = 800, 8
#: Between linear (8) and quadratic (64), nearer to the latter: other work on the processor slows single runs.
GROWTH_MAX = 32
#: Seconds below which a measurement says nothing, and the most that any text may take.
NOISE_S, LIMIT_S = 0.01, 1.0
#: What patterns repeat, open and never close; each is tried alone, before an end that spoils the match, and in pairs.
PIECES = [
    *(
        "a",
        "0",
        " ",
        "\t",
        "-",
        "_",
        ".",
        ",",
        ";",
        ":",
        "@",
        "<",
        ">",
        "(",
        "[",
        '"',
        "'",
        "\\",
        "/",
        "%",
        "é",
        "²",
        "\n",
    ),
    *(
        '\\"',
        '"a"',
        "<a>",
        "a@",
        "a.",
        "0.",
        "%s ",
        "{{",
        "{%",
        "<!--",
        "<![CDATA[",
        "<?",
        "<c ",
        "=?",
        "\r\n",
        "a=",
        "5.1.",
        "4",
    ),
    *("user ", "mail ", "\U0001f1e6", "\u200d", "\U0001f469\u200d", "e\u0301", "SKIPPED: lock code -1, held by "),
]


SOURCES: list[str] = []


def compiled() -> Iterator[tuple[str, "re.Pattern[str] | re.Pattern[bytes] | regex.Pattern[str]"]]:
    """Yield each pattern that a module or a class of the packages keeps, with its name."""
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(path, f"{package}."):
            if any(part in found.name for part in LEFT_OUT):
                continue
            try:
                module = importlib.import_module(found.name)
            except (ImportError, RuntimeError):
                continue  # needs an extra, or another database's driver
            source = Path(str(module.__file__)).read_text(encoding="utf-8")
            SOURCES.append(source)
            spaces = [module, *(value for value in vars(module).values() if isinstance(value, type))]
            for space in spaces:
                for name, value in vars(space).items():
                    if re.search(rf"^ *{re.escape(name)}\b.*=", source, re.MULTILINE):
                        yield from named(f"{found.name}.{name}", value)


def named(name, value):
    """Yield the patterns in a value: itself, or those of a collection."""
    if isinstance(value, re.Pattern | regex.Pattern):
        yield name, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from named(f"{name}[{key!r}]", key)
            yield from named(f"{name}[{key!r}]", one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from named(name, one)


hidden_before = {name for name, module in sys.modules.items() if module is None}
PATTERNS = {(pattern.pattern, pattern.flags): (name, pattern) for name, pattern in compiled()}
# A module of the child process hides optional libraries from those it imports; here others want them.
for hidden in {name for name, module in sys.modules.items() if module is None} - hidden_before:
    del sys.modules[hidden]


def worst(chars: int) -> Iterator[str]:
    """Yield hostile texts of about so many characters."""
    for piece in PIECES:
        text = piece * (chars // len(piece))
        yield text
        yield text + "\0"
        yield f'"{text}'
    for first in ("<", '"', "a", "0", "(", "5.1.1 "):
        for piece in (" ", "a", '"', "\\", "\n", "=", "<c "):
            yield first + piece * chars + "!"


def uses(name: str) -> list[str]:
    """Return the methods of a pattern that the packages call; all of them where it is not called by its name."""
    word = re.escape(name.rpartition(".")[2].partition("[")[0])
    called = {found for source in SOURCES for found in re.findall(rf"\b{word}\.(\w+)\(", source)}
    known = {"fullmatch", "match", "search", "findall", "finditer", "sub", "split"}
    return sorted(called & known or {"fullmatch", "search", "findall"})


def seconds(pattern, text, methods=("fullmatch", "search", "findall")) -> float:
    """Return how long the pattern takes with a text in the ways it is used."""
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    for method in methods:
        if method == "sub":
            pattern.sub(given[:0], given)
        elif method == "finditer":
            pattern.findall(given)
        else:
            getattr(pattern, method)(given)
    return time.process_time() - began


def growth(pattern, methods=("search",)) -> tuple[float, str]:
    """Return the largest factor by which the time grows with the text, and the text it grows with."""
    found = (0.0, "")
    for short, long in zip(worst(SHORT), worst(SHORT * FACTOR), strict=True):
        longer = seconds(pattern, long, methods)
        if longer > NOISE_S:
            # Measured again: another process may have had the processor.
            longer = min(longer, *(seconds(pattern, long, methods) for _ in range(3)))
            took = min(seconds(pattern, short, methods) for _ in range(3))
            found = max(found, (longer / took, short[:40]))
        if longer > LIMIT_S:
            return found
    return found


def test_the_patterns_are_found():
    names = {name for name, _ in PATTERNS.values()}

    assert {"notify.addresses.NAMED", "notify.text.CONTROL", "notify.transports.replies.QUOTA"} <= names
    assert any(name.startswith("kwit.") for name in names)
    assert any(name.startswith("receipts.") for name in names)


def test_control_a_quadratic_pattern_is_found():
    assert growth(re.compile(r"a*b"))[0] > GROWTH_MAX
    assert growth(re.compile(r"(?:<!--.*?-->)", re.DOTALL))[0] > GROWTH_MAX


@pytest.mark.parametrize(("name", "pattern"), PATTERNS.values(), ids=[name for name, _ in PATTERNS.values()])
def test_a_pattern_is_linear(name, pattern):
    factor, text = growth(pattern, uses(name))

    assert factor < GROWTH_MAX, f"{name} takes {factor:.0f} times as long for {FACTOR} times {text!r}"
