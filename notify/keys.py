"""
Keys of events that are no 64-bit integers: a UUID, a text, several columns together.

The control table knows an event by two 64-bit integers. ``UuidKey`` puts the 128 bits of a UUID into them, exactly;
``DigestKey`` puts the first 128 bits of SHA-256 over the canonical values there. Both are SQL expressions, so that the
anti-join with the control table stays in the database and uses its index. What the event is called by people, its
original key, is kept beside the two integers.

The canonical text of one value: a UUID in lower case with hyphens, an integer in decimals, a date as 2026-01-31, a text
as it is. Each is preceded by its length, ``5:PO-17,2:42``, so that no two lists of values have one text. SQLite and
PostgreSQL digest it as UTF-8; SQL Server, which has no UTF-8 before 2019, digests and counts UTF-16.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from hashlib import sha256
from typing import Any, Self
from uuid import UUID

from django.db import NotSupportedError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    BigIntegerField,
    CharField,
    DateField,
    DateTimeField,
    F,
    Field,
    ForeignKey,
    Func,
    IntegerField,
    Q,
    QuerySet,
    TextField,
    UUIDField,
)
from django.db.models.lookups import IsNull

from kwit.db.dialect import Database, database_of

from .errors import WrongKey

#: UTF-16 code units of an original key that the control table keeps; a longer one is cut, for it only informs.
ORIGINAL_KEY_UNITS_MAX = 255
SEPARATOR, ESCAPE = "/", "\\"
Sql = tuple[str, list[Any]]


def kind_of(field: "Field[Any, Any]") -> str:
    """Return how values of a field become text. Raises: WrongKey, for a field that can be no key."""
    while isinstance(field, ForeignKey):
        field = field.target_field
    for classes, kind in KINDS:
        if isinstance(field, classes) and not isinstance(field, DateTimeField):
            return kind
    raise WrongKey(f"a {type(field).__name__} cannot be part of a key: use a text, an integer, a UUID or a date")


KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((UUIDField,), "u"),
    ((IntegerField,), "i"),
    ((CharField, TextField), "t"),
    ((DateField,), "d"),
)


class EventKey(Func):
    """One half of a key that is made of other columns; ``half`` is 0 for ``key`` and 1 for ``key2``."""

    def __init__(self, *parts: Any, half: int = 0) -> None:
        super().__init__(*parts, output_field=self.make_field())
        #: As they were given, so that they can be resolved in another query.
        self.parts, self.half = parts, half

    def make_field(self) -> "Field[Any, Any]":
        """Return the field of what the expression gives."""
        return BigIntegerField()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"

    @property
    def kinds(self) -> str:
        """The kind of each part, one letter each; known once the expression belongs to a query. Raises: WrongKey."""
        return "".join(kind_of(part.output_field) for part in self.get_source_expressions())

    def of(self, *parts: Any, half: int = 0) -> Self:
        """Return a key of this class made of other columns."""
        return type(self)(*parts, half=half)

    def other_half(self) -> Self:
        """Return what ``key2`` is."""
        return self.of(*self.parts, half=1)

    def is_known(self) -> list[IsNull]:
        """Return the conditions that the key is not NULL, without computing it: none of its parts is."""
        return [IsNull(F(part) if isinstance(part, str) else part, False) for part in self.parts]

    def original(self) -> "OriginalKey":
        """Return what people call the event."""
        return OriginalKey(*self.parts)

    def read(self, original: str) -> list[str]:
        """Return the canonical texts of an original key. Raises: WrongKey."""
        kinds = self.kinds
        texts = split(original) if len(kinds) > 1 else [original]
        if len(texts) != len(kinds):
            raise WrongKey(f"{original!r} has {len(texts)} parts; this key has {len(kinds)}, separated by {SEPARATOR}")
        return [canonical(text, kind) for text, kind in zip(texts, kinds, strict=True)]

    def numbers_of(self, texts: Sequence[str], database: Database) -> tuple[int, int]:
        """Return the two integers of canonical texts."""
        raise NotImplementedError

    def numbers(self, original: str, *, using: str) -> tuple[int, int]:
        """Return the two integers of an original key. Raises: WrongKey."""
        return self.numbers_of(self.read(original), database_of(connections[using]))

    def matching(self, originals: Iterable[str]) -> Q | None:
        """
        Return the condition that a row has one of these original keys, by its own columns and so by their index.

        None when a part is no plain column, or an original key cannot be read.
        """
        given = [getattr(part, "name", None) if isinstance(part, F) else part for part in self.parts]
        names = [name for name in given if isinstance(name, str)]
        if names != given:
            return None
        found = Q(pk__in=[])
        with suppress(WrongKey):
            read = [self.read(original) for original in originals]
            if len(names) == 1:
                return Q(**{f"{names[0]}__in": [text for (text,) in read]})
            for texts in read:
                found |= Q(**dict(zip(names, texts, strict=True)))
            return found
        return None

    def compiled(self, compiler: Any, connection: BaseDatabaseWrapper) -> list[Sql]:
        """Return the SQL of each part."""
        return [(sql, list(params)) for sql, params in map(compiler.compile, self.get_source_expressions())]

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper, *args: Any, **extra: Any) -> Any:
        """Refuse a database that has no SQL of this. Raises: UnknownDatabase, NotSupportedError."""
        raise NotSupportedError(f"{type(self).__name__} knows no SQL of {database_of(connection)}")


class UuidKey(EventKey):
    """
    A UUID as an event's key: its 128 bits are ``key`` and ``key2``.

    ::

        Invoice.objects.values(key=UuidKey("pk"), event_at=F("issued_at"))
    """

    def numbers_of(self, texts: Sequence[str], database: Database) -> tuple[int, int]:
        """Return the two halves of a UUID."""
        return halves(UUID(texts[0]).bytes)

    @staticmethod
    def from_numbers(key: int, key2: int) -> UUID:
        """Return the UUID that two integers are the halves of."""
        return UUID(bytes=key.to_bytes(8, signed=True) + key2.to_bytes(8, signed=True))

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        register_functions(connection)
        [(sql, params)] = self.compiled(compiler, connection)
        return f"kwit_uuid_half(substr({sql}, {1 + 16 * self.half:d}, 16))", params

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        [(sql, params)] = self.compiled(compiler, connection)
        # The bytes; taking the text apart takes twice as long.
        digits = f"encode(substr(uuid_send({sql}), {1 + 8 * self.half:d}, 8), 'hex')"
        return f"('x' || {digits})::bit(64)::bigint", params

    def as_microsoft(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        [(sql, params)] = self.compiled(compiler, connection)
        digits = f"SUBSTRING({tsql_digits(sql)}, {1 + 16 * self.half:d}, 16)"
        return f"CONVERT(bigint, CONVERT(binary(8), {digits}, 2))", params


class DigestKey(EventKey):
    """
    Texts, integers, UUIDs and dates as an event's key: 128 bits of SHA-256 over their canonical text.

    ::

        Ticket.objects.values(key=DigestKey("number"), event_at=F("opened_at"))
        Invoice.objects.values(key=DigestKey("pk", "reminder_no"), event_at=F("reminder_at"))
    """

    def numbers_of(self, texts: Sequence[str], database: Database) -> tuple[int, int]:
        """Return the two halves of the digest."""
        return digest(texts, is_utf16=database == "sqlserver")

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        register_functions(connection)
        parts = self.compiled(compiler, connection)
        arguments = ", ".join([f"{self.half:d}", f"'{self.kinds}'", *(sql for sql, _params in parts)])
        return f"kwit_digest_half({arguments})", merged(parts)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        texts = texts_of(self, compiler, connection, postgresql_text)
        whole = " || ',' || ".join(f"char_length({sql})::text || ':' || {sql}" for sql, _params in texts)
        digits = f"encode(substr(sha256(convert_to({whole}, 'UTF8')), {1 + 8 * self.half:d}, 8), 'hex')"
        return f"('x' || {digits})::bit(64)::bigint", merged(texts, times=2)

    def as_microsoft(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        texts = texts_of(self, compiler, connection, tsql_text)
        whole = " + N',' + ".join(
            f"CONVERT(nvarchar(20), DATALENGTH({sql}) / 2) + N':' + {sql}" for sql, _params in texts
        )
        digest_half = f"SUBSTRING(HASHBYTES('SHA2_256', {whole}), {1 + 8 * self.half:d}, 8)"
        return f"CONVERT(bigint, CONVERT(binary(8), {digest_half}))", merged(texts, times=2)


class OriginalKey(EventKey):
    """What people call an event: the texts of its key's parts, separated by ``/``."""

    def make_field(self) -> "Field[Any, Any]":
        """Return the field of a text."""
        return CharField()

    def as_sqlite(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        texts = texts_of(self, compiler, connection, sqlite_sql)
        return f"({self.joined(texts, ' || ', '')})", merged(texts)

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        texts = texts_of(self, compiler, connection, postgresql_text)
        return f"({self.joined(texts, ' || ', '')})", merged(texts)

    def as_microsoft(self, compiler: Any, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        texts = texts_of(self, compiler, connection, tsql_text)
        return f"({self.joined(texts, ' + ', 'N')})", merged(texts)

    def joined(self, texts: Sequence[Sql], plus: str, prefix: str) -> str:
        """Return the SQL of the texts, each escaped when there are several."""
        if len(texts) == 1:
            return texts[0][0]
        quoted = [f"{prefix}'{text}'" for text in (ESCAPE, ESCAPE * 2, SEPARATOR, ESCAPE + SEPARATOR)]
        escaped = [
            f"REPLACE(REPLACE({sql}, {quoted[0]}, {quoted[1]}), {quoted[2]}, {quoted[3]})" for sql, _params in texts
        ]
        return f"{plus}{quoted[2]}{plus}".join(escaped)


def sqlite_sql(kind: str, sql: str) -> str:
    """Return the SQL of a value's canonical text on SQLite, whose UUIDs are 32 digits."""
    if kind != "u":
        return f"CAST({sql} AS TEXT)" if kind == "i" else sql
    digits = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return "lower(" + " || '-' || ".join(f"substr({sql}, {first}, {number})" for first, number in digits) + ")"


def texts_of(key: EventKey, compiler: Any, connection: BaseDatabaseWrapper, write: Any) -> list[Sql]:
    """Return the SQL of each part as its canonical text."""
    parts = key.compiled(compiler, connection)
    return [(write(kind, sql), params) for kind, (sql, params) in zip(key.kinds, parts, strict=True)]


def merged(parts: Sequence[Sql], *, times: int = 1) -> list[Any]:
    """Return the parameters of parts each of which stands so many times in the SQL."""
    return [value for _sql, params in parts for value in params * times]


def postgresql_text(kind: str, sql: str) -> str:
    """Return a value as PostgreSQL writes its canonical text."""
    return f"to_char({sql}, 'YYYY-MM-DD')" if kind == "d" else f"({sql})::text"


def tsql_digits(sql: str) -> str:
    """Return a UUID's 32 digits, whether its column is a uniqueidentifier or a char(32)."""
    return f"REPLACE(CONVERT(nvarchar(36), {sql}), N'-', N'')"


def tsql_text(kind: str, sql: str) -> str:
    """Return a value as SQL Server writes its canonical text."""
    if kind == "u":
        hyphenated = tsql_digits(sql)
        for place in (9, 14, 19, 24):
            hyphenated = f"STUFF({hyphenated}, {place}, 0, N'-')"
        return f"LOWER({hyphenated})"
    if kind == "d":
        return f"CONVERT(nvarchar(10), {sql}, 23)"
    return f"CONVERT(nvarchar({'20' if kind == 'i' else 'max'}), {sql})"


def canonical(text: str, kind: str) -> str:
    """Return what a person has written as a part's canonical text. Raises: WrongKey."""
    try:
        if kind == "u":
            return str(UUID(text.strip()))
        if kind == "i":
            number = int(text.strip())
            if not -(2**63) <= number < 2**63:
                raise ValueError(text)
            return str(number)
        # What no database stores: neither NUL nor half of a surrogate pair.
        if "\0" in text:
            raise ValueError(text)
        text.encode()
        return date.fromisoformat(text.strip()).isoformat() if kind == "d" else text
    except ValueError as error:
        raise WrongKey(f"{text!r} is no {NAMES[kind]}") from error


NAMES = {"u": "UUID", "i": "whole number of 64 bits", "t": "text", "d": "date as 2026-01-31"}


def split(original: str) -> list[str]:
    """Return the parts of an original key of several."""
    parts, is_escaped = [""], False
    for character in original:
        if is_escaped or character not in (SEPARATOR, ESCAPE):
            parts[-1] += character
            is_escaped = False
        elif character == ESCAPE:
            is_escaped = True
        else:
            parts.append("")
    return parts


def join(texts: Sequence[str]) -> str:
    """Return an original key of its parts."""
    if len(texts) == 1:
        return texts[0]
    return SEPARATOR.join(text.replace(ESCAPE, ESCAPE * 2).replace(SEPARATOR, ESCAPE + SEPARATOR) for text in texts)


def halves(bits: bytes) -> tuple[int, int]:
    """Return 128 bits as two signed 64-bit integers."""
    return int.from_bytes(bits[:8], signed=True), int.from_bytes(bits[8:16], signed=True)


def digest(texts: Sequence[str], *, is_utf16: bool = False) -> tuple[int, int]:
    """Return the two integers of canonical texts."""
    if is_utf16:
        whole = ",".join(f"{len(text.encode('utf-16-le')) // 2}:{text}" for text in texts)
        return halves(sha256(whole.encode("utf-16-le")).digest())
    return halves(sha256(",".join(f"{len(text)}:{text}" for text in texts).encode()).digest())


def register_functions(connection: BaseDatabaseWrapper) -> None:
    """Give a session of SQLite the functions that it has none of; SQL is compiled right before it is executed."""
    connection.ensure_connection()
    for name, arguments, function in (
        ("kwit_uuid_half", 1, sqlite_uuid_half),
        ("kwit_digest_half", -1, lambda half, *values: sqlite_digest(*values)[half]),
    ):
        connection.connection.create_function(name, arguments, function, deterministic=True)


def sqlite_uuid_half(digits: str | None) -> int | None:
    """Return half of a UUID, of which Django stores the digits on SQLite."""
    return None if digits is None else int.from_bytes(bytes.fromhex(digits), signed=True)


# Cached, because SQLite asks for both halves of the same row again and again: in the columns and in the anti-join.
@lru_cache(maxsize=128, typed=True)
def sqlite_digest(kinds: str, *values: Any) -> tuple[int | None, int | None]:
    """Return the halves of the digest of values as Django stores them on SQLite."""
    if None in values:
        return None, None
    return digest([sqlite_text(kind, value) for kind, value in zip(kinds, values, strict=True)])


def sqlite_text(kind: str, value: Any) -> str:
    """Return the canonical text of a value as Django stores it on SQLite."""
    if kind == "u":
        return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}".lower()
    return str(value)


def key_in(found: QuerySet[Any, Any]) -> EventKey | None:
    """Return the key of a step's query when it is made of other columns; None for a plain integer."""
    key = found.query.annotations.get("key")
    return key if isinstance(key, EventKey) else None
