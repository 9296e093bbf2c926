"""Components of pages: plain values for the templates; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

Text = str | Promise
#: Shown where there is no value.
NONE = "—"
BAR = (
    '<svg class="kwit-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="kwit-bar-back" width="100" height="6"/><rect class="kwit-bar-fore" width="%.1f" height="6"/></svg>'
)


@dataclass(frozen=True)
class Link:
    """A link to another page."""

    text: Text
    url: str


@dataclass(frozen=True)
class Badge:
    """A state as word, icon and tone (good, warn, bad, idle, busy): never by colour alone."""

    word: Text
    icon: str
    tone: str

    @property
    def html(self) -> SafeString:
        """Its HTML; a page has hundreds, and a template for each would take most of the page's time."""
        return format_html(
            '<span class="kwit-badge kwit-{}"><span aria-hidden="true">{}</span> {}</span>',
            self.tone,
            self.icon,
            self.word,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell or value: a text, a moment or a badge, perhaps with a link and a bar."""

    text: Any = ""
    at: datetime | None = None
    badge: Badge | None = None
    url: str = ""
    is_number: bool = False
    is_code: bool = False
    #: It differs from the cell beside it: marked by a sign, not by colour alone.
    is_marked: bool = False
    #: 0 to 100: the length of a bar beside the number.
    bar: float | None = None

    @property
    def html(self) -> SafeString:
        """Its HTML; every text is escaped, also a SafeString."""
        inner = self.badge.html if self.badge else ""
        if self.at is not None:
            local = timezone.localtime(self.at)
            inner += f'<time datetime="{local.isoformat()}">{local:%Y-%m-%d %H:%M:%S}</time>'
        text = escape(str(self.text))
        inner += f"<code>{text}</code>" if self.is_code else text
        if self.url:
            inner = f'<a href="{escape(self.url)}">{inner}</a>'
        if self.is_marked:
            inner = f'<mark class="kwit-mark">≠ {inner}</mark>'
        if self.bar is not None:
            inner += BAR % self.bar
        return SafeString(inner)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table; ``fold`` is a table below it that opens on request."""

    cells: Sequence[Cell]
    key: str = ""
    #: What a screen reader calls the line's checkbox.
    name: str = ""
    fold: "Table | None" = None
    fold_name: Text = ""

    @property
    def tds(self) -> SafeString:
        """The cells as markup."""
        return SafeString(
            "".join(
                f'<td class="kwit-number">{cell.html}</td>' if cell.is_number else f"<td>{cell.html}</td>"
                for cell in self.cells
            )
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its headings; ``caption`` is its name."""

    head: Sequence[Text]
    rows: Sequence[Row]
    caption: Text = ""
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One named value of a detail page."""

    name: Text
    cell: Cell


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a detail page: facts, a table, a text kept as it is, sentences, a sandboxed document, or several."""

    title: Text = ""
    facts: Sequence[Fact] = ()
    table: Table | None = None
    text: str = ""
    #: Sentences, and their language when it is not the page's.
    lines: Sequence[Text] = ()
    lang: str = ""
    #: The address of a document shown in a sandboxed frame; see ``kwit.middleware.sandboxed``.
    frame: str = ""
    #: Links to other parts of the table, above it; the one that is shown has no URL.
    choices: Sequence[Link] = ()
    #: Links to the table's previous and next page, below it.
    pages: Sequence[Link] = ()


@dataclass(frozen=True)
class Tile:
    """One number with its name, linked to the list behind it."""

    name: Text
    value: Text
    url: str = ""
    badge: Badge | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem, what to do about it, and the link to it."""

    badge: Badge
    text: Text
    what_to_do: Text = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A row's own page."""

    title: Text
    sections: Sequence[Section]
    badge: Badge | None = None
    previous: Link | None = None
    next: Link | None = None
    links: Sequence[Link] = field(default_factory=tuple)
    #: Actions without confirmation: one form each, sent to the URL.
    buttons: Sequence[Link] = ()
    #: Seconds after which the page reloads; 0 for never.
    refresh_s: int = 0
