"""
A price list (two compared fields, two set ones) against what one would write by hand, on the same rows in one run.

(a) is one UPDATE and one INSERT per row, each pair in a savepoint; (b) is the bare set-based SQL of the same effect:
one locking read, one UPDATE … RETURNING, one INSERT of audit rows and one of the receipt. Each run has fresh rows.
"""

import itertools
import json
import statistics
from collections.abc import Callable, Iterable

from benchmarks.harness import Figure, seconds

TENANT = "bench"
_numbers = itertools.count(1)

Row = tuple[int, str, str, str, str]


def fresh_rows(count: int) -> list[Row]:
    """Make prices; return (id, price, currency, new price, new date) of each."""
    from portal.models import Price

    number = next(_numbers)
    prices = (Price(tenant=TENANT, article=f"B-{number}", price="10.00", currency="EUR") for _ in range(count))
    Price.objects.bulk_create(prices, batch_size=5_000)
    ids = Price.objects.filter(article=f"B-{number}").order_by("pk").values_list("pk", flat=True)
    # Each row gets a price of its own, as in a real list.
    return [(pk, "10.00", "EUR", f"{11 + pk % 5_000}.{pk % 100:02}", "2026-02-01") for pk in ids]


def with_engine(change_id: str, rows: list[Row]) -> None:
    """Apply with Kwit."""
    from receipts.api import apply_change

    names = ("price", "currency", "set:price", "set:valid_from")
    targets = [{"id": row[0], **dict(zip(names, row[1:], strict=True))} for row in rows]
    assert apply_change(kind="reprice", change_id=change_id, tenant=TENANT, targets=targets)


def put_receipt(cursor: object, change_id: str, rows: list[Row]) -> None:
    """Insert a receipt by hand, with a digest that says nothing."""
    cursor.execute(  # type: ignore[attr-defined]
        "INSERT INTO receipts_changes (change_id, kind, tenant, targets, digest) VALUES (%s, 'reprice', %s, %s, '')",
        [change_id, TENANT, json.dumps(rows)],
    )


AUDIT = "INSERT INTO receipts_audit (change_id, target_id, fields)"


def row_by_row(change_id: str, rows: list[Row]) -> None:
    """(a): a savepoint, an UPDATE and an INSERT per row."""
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        put_receipt(cursor, change_id, rows)
        for pk, price, currency, new_price, valid_from in rows:
            with transaction.atomic():
                cursor.execute(
                    "UPDATE portal_price SET price = %s, valid_from = %s, changed_at = CURRENT_TIMESTAMP"
                    " WHERE id = %s AND tenant = %s AND price = %s AND currency = %s",
                    [new_price, valid_from, pk, TENANT, price, currency],
                )
                assert cursor.rowcount == 1
                fields = json.dumps({"price": {"before": price, "after": new_price}})
                cursor.execute(f"{AUDIT} VALUES (%s, %s, %s)", [change_id, pk, fields])


def bare_sql(change_id: str, rows: list[Row]) -> None:
    """(b): three statements for the rows, one for the receipt; no comparison of what came back but its count."""
    from django.db import connection, transaction

    if connection.vendor == "postgresql":
        columns = [list(column) for column in zip(*rows, strict=True)]
        arrays = "%s::bigint[], %s::numeric[], %s::text[], %s::numeric[], %s::date[]"
        plan = f"SELECT * FROM unnest({arrays}) AS p(id, price, currency, new_price, new_date)"
        lock = " FOR NO KEY UPDATE OF l"
        audit = f"{AUDIT} SELECT %s, (c->>0)::bigint, c->1 FROM jsonb_array_elements(%s::jsonb) AS r(c)"
    else:
        columns = [json.dumps(rows)]
        names = ("id", "price", "currency", "new_price", "new_date")
        fields = ", ".join(f"json_extract(value, '$[{at}]') AS {name}" for at, name in enumerate(names))
        plan, lock = f"SELECT {fields} FROM json_each(%s)", ""
        audit = f"{AUDIT} SELECT %s, json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(%s)"
    with transaction.atomic(), connection.cursor() as cursor:
        put_receipt(cursor, change_id, rows)
        cursor.execute(
            f"WITH p AS MATERIALIZED ({plan}) SELECT l.id, l.price, l.currency, l.valid_from, l.changed_at"
            f" FROM portal_price l JOIN p ON l.id = p.id WHERE l.tenant = %s ORDER BY l.id{lock}",
            [*columns, TENANT],
        )
        before = cursor.fetchall()
        assert len(before) == len(rows)
        cursor.execute(
            f"WITH p AS MATERIALIZED ({plan}) UPDATE portal_price SET price = p.new_price, valid_from = p.new_date,"
            " changed_at = CURRENT_TIMESTAMP FROM p WHERE portal_price.id = p.id AND tenant = %s"
            " AND portal_price.price = p.price AND portal_price.currency = p.currency"
            " RETURNING portal_price.id, portal_price.price, portal_price.valid_from, portal_price.changed_at",
            [*columns, TENANT],
        )
        back = cursor.fetchall()
        assert len(back) == len(rows)
        found = [
            [new[0], {"price": [str(old[1]), str(new[1])], "valid_from": [str(old[3]), str(new[2])]}]
            for old, new in zip(before, sorted(back), strict=True)
        ]
        cursor.execute(audit, [change_id, json.dumps(found)])


def median_apply(call: Callable[..., None], count: int, *, repeats: int) -> float:
    """Return the median of applying a fresh list of this size, after one that is not counted."""
    batches = [(f"PRICES-{next(_numbers)}", fresh_rows(count)) for _ in range(repeats + 1)]
    taken = [seconds(lambda batch=batch: call(*batch)) for batch in batches]
    return statistics.median(taken[1:])


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield the figures; the bars are PostgreSQL's, at 10,000 targets."""
    if vendor == "mssql":
        return
    size = max(2, int(10_000 * scale))
    is_barred = vendor == "postgresql" and size >= 10_000
    engine = median_apply(with_engine, size, repeats=5)
    by_row = median_apply(row_by_row, size, repeats=2)
    bare = median_apply(bare_sql, size, repeats=5)
    name = f"apply a price list of {size:,} rows"
    yield Figure(
        name, size / engine, "rows/s", "(a) a savepoint per row", by_row / engine, ">= 15" if is_barred else None
    )
    yield Figure(name, engine * 1000, "ms", "(b) bare set-based SQL", bare / engine, ">= 0.6" if is_barred else None)
