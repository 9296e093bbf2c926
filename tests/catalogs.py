"""
Bring the message catalogs up to date: texts from the templates and the code, ``django.po``, ``django.mo`` from it.

``python -m tests.catalogs`` (``make messages``). Needs Babel only, not GNU gettext: Django turns a template into
something that Babel's extractor for Python can read.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir, extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "locale"
#: Which folders a catalog takes its texts from. The pages carry their own catalogs, so that a host site has them, too.
HOMES = {
    LOCALE: ("portal", "templates"),
    ROOT / "kwit" / "locale": ("kwit",),
    ROOT / "notify" / "locale": ("notify",),
    ROOT / "receipts" / "locale": ("receipts",),
}
METHODS = [("**/tests/**.py", "ignore"), ("**.py", "python"), ("**.html", "template"), ("**.txt", "template")]
UNUSED = (b'"Report-', b'"PO-Revision', b'"Last-Translator', b'"Language-Team', b'"Generated-By')
KEYWORDS = {
    "_": None,
    "Words": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
}


def template_messages(file: IO[bytes], keywords: Any, comment_tags: Any, options: Any) -> Iterator[Any]:
    """Extract from a Django template."""
    source = templatize(file.read().decode())
    yield from extract_python(BytesIO(source.encode()), keywords, comment_tags, options)


def extracted(home: Path = LOCALE) -> Catalog:
    """Return every text that belongs into the catalogs of a place."""
    found = Catalog()
    methods = [(pattern, {"template": template_messages}.get(method, method)) for pattern, method in METHODS]
    for folder in HOMES[home]:
        for name, _line, text, comments, context in extract_from_dir(
            ROOT / folder,
            methods,  # type: ignore[arg-type]
            keywords=KEYWORDS,  # type: ignore[arg-type]
        ):
            # No line numbers: they would change the catalogs with every edit above.
            found.add(text, locations=[(f"{folder}/{name}", None)], auto_comments=comments, context=context)  # type: ignore[list-item]
    return found


def po_path(language: str, home: Path = LOCALE) -> Path:
    """Return the place of a language's catalog."""
    return home / language / "LC_MESSAGES" / "django.po"


def read(language: str, home: Path = LOCALE) -> Catalog:
    """Return a language's catalog as it is in the repository."""
    with po_path(language, home).open("rb") as file:
        return read_po(file, locale=language)


def compiled(catalog: Catalog) -> bytes:
    """Return the bytes of ``django.mo``."""
    made = BytesIO()
    write_mo(made, catalog)
    return made.getvalue()


def written(catalog: Catalog) -> bytes:
    """Return the bytes of ``django.po``, without the header lines that nobody has filled in."""
    made = BytesIO()
    write_po(made, catalog, sort_output=True, width=120)
    return b"".join(line for line in made.getvalue().splitlines(keepends=True) if not line.startswith(UNUSED))


def languages() -> list[str]:
    """Return the languages that have a catalog."""
    return sorted(path.name for path in LOCALE.iterdir() if (path / "LC_MESSAGES").is_dir())


def main() -> None:
    """Rewrite every catalog; translations are kept, texts that are gone are dropped."""
    for home in HOMES:
        found = extracted(home)
        for language in languages():
            catalog = read(language, home)
            catalog.update(found, no_fuzzy_matching=True, update_creation_date=False)
            catalog.obsolete.clear()
            po_path(language, home).write_bytes(written(catalog))
            po_path(language, home).with_suffix(".mo").write_bytes(compiled(catalog))


if __name__ == "__main__":
    main()
