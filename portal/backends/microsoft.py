"""The room for SQL Server: rows as one JSON text, ids by OUTPUT (bulk_create tells none there)."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


def insert(
    connection: BaseDatabaseWrapper, model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> list[int]:
    fields = {field.attname: field for field in model._meta.concrete_fields}
    quote, table = connection.ops.quote_name, connection.ops.quote_name(model._meta.db_table)
    columns = ", ".join(quote(fields[name].column or name) for name in names)
    shape = ", ".join(
        f"c{place} {fields[name].cast_db_type(connection)} '$[{place}]'" for place, name in enumerate(names)
    )
    chosen = ", ".join(f"r.c{place}" for place in range(len(names)))
    # Ids are given in the order of ORDER BY, so the sorted ids are those of the rows in their order.
    sql = f"""
SET NOCOUNT ON;
DECLARE @made TABLE (id bigint NOT NULL);
INSERT INTO {table} ({columns}) OUTPUT inserted.id INTO @made (id)
SELECT {chosen} FROM OPENJSON(%s) WITH ({shape}, place bigint '$[{len(names)}]') AS r ORDER BY r.place;
SELECT id FROM @made ORDER BY id;
"""  # noqa: S608 - names of ours
    numbered = [(*row, place) for place, row in enumerate(rows)]
    with connection.cursor() as cursor:
        cursor.execute(sql, [json.dumps(numbered, ensure_ascii=False, default=as_utc)])
        made = [pk for (pk,) in cursor.fetchall()]
        while cursor.nextset():
            pass
    return made


def as_utc(moment: datetime) -> str:
    """Return a time as text without an offset, which a ``datetime2`` would drop unread."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()
