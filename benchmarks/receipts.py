"""
``cancel_many`` and ``reconcile`` against what one would write by hand, on the same rows in the same run.

(a) is one UPDATE and one INSERT per row, each pair in a savepoint; (b) is the bare set-based SQL of the same effect:
one locking read, one UPDATE … RETURNING, one INSERT of audit rows and one of the receipt. Each run has fresh rows.
"""

import itertools
import json
import statistics
from collections.abc import Callable, Iterable

from benchmarks.harness import Figure, median_seconds, seconds

TENANT = "bench"
_numbers = itertools.count(1)


def fresh_targets(count: int) -> list[tuple[int, int, int]]:
    """Make pending rows; return (id, revision, qty) of each."""
    from portal.models import Order, OrderLine

    order = Order.objects.create(number=f"BENCH-{next(_numbers)}", tenant=TENANT)
    rows = (
        OrderLine(order=order, tenant=TENANT, qty=10, revision=4, state="pending", handled=True) for _ in range(count)
    )
    OrderLine.objects.bulk_create(rows, batch_size=5_000)
    # Asked for, because bulk_create tells no ids on SQL Server.
    return [(pk, 4, 10) for pk in OrderLine.objects.filter(order=order).order_by("pk").values_list("pk", flat=True)]


def with_engine(change_id: str, rows: list[tuple[int, int, int]]) -> None:
    """Apply with Kwit."""
    from receipts.api import Target, cancel_many

    assert cancel_many(change_id=change_id, tenant=TENANT, targets=[Target(*row) for row in rows])


def put_receipt(cursor: object, change_id: str, rows: list[tuple[int, int, int]]) -> None:
    """Insert a receipt by hand, with a digest that says nothing."""
    targets = json.dumps([{"id": row[0], "revision": row[1], "qty": row[2]} for row in rows])
    cursor.execute(  # type: ignore[attr-defined]
        "INSERT INTO receipts_changes (change_id, kind, tenant, targets, digest) VALUES (%s, 'cancel', %s, %s, '')",
        [change_id, TENANT, targets],
    )


AUDIT = (
    "INSERT INTO receipts_audit (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)"
)


def row_by_row(change_id: str, rows: list[tuple[int, int, int]]) -> None:
    """(a): a savepoint, an UPDATE and an INSERT per row."""
    from django.db import connection, transaction

    # As mssql-django does, lest the count be none where NOCOUNT is ON.
    counted = "SET NOCOUNT OFF; " if connection.vendor == "microsoft" else ""
    with transaction.atomic(), connection.cursor() as cursor:
        put_receipt(cursor, change_id, rows)
        for pk, revision, qty in rows:
            with transaction.atomic():
                cursor.execute(
                    f"{counted}UPDATE portal_orderline SET state = 'cancelled', revision = revision + 1"
                    " WHERE id = %s AND tenant = %s AND revision = %s AND qty = %s AND state = 'pending'",
                    [pk, TENANT, revision, qty],
                )
                assert cursor.rowcount == 1
                cursor.execute(
                    f"{AUDIT} VALUES (%s, %s, %s, %s, %s, 'pending', 'cancelled')",
                    [change_id, pk, revision, revision + 1, qty],
                )


#: (b) on SQL Server, where the rows travel as JSON, too: lock, UPDATE, audit rows.
BARE_TSQL = (
    "SELECT l.id, l.revision, l.qty, l.state FROM OPENJSON(%s) WITH (id bigint '$[0]') AS p"
    " JOIN portal_orderline AS l WITH (UPDLOCK, ROWLOCK) ON l.id = p.id WHERE l.tenant = %s ORDER BY l.id",
    "UPDATE l SET state = 'cancelled', revision = l.revision + 1"
    " OUTPUT inserted.id, inserted.revision, inserted.qty, inserted.state"
    " FROM OPENJSON(%s) WITH (id bigint '$[0]', revision bigint '$[1]', qty bigint '$[2]') AS p"
    " JOIN portal_orderline AS l ON l.id = p.id WHERE l.tenant = %s AND l.revision = p.revision AND l.qty = p.qty"
    " AND l.state = 'pending'",
    f"{AUDIT} SELECT %s, id, revision - 1, revision, qty, 'pending', state FROM OPENJSON(%s)"
    " WITH (id bigint '$[0]', revision bigint '$[1]', qty bigint '$[2]', state nvarchar(20) '$[3]') AS c",
)


def bare_tsql(change_id: str, rows: list[tuple[int, int, int]]) -> None:
    """(b) on SQL Server."""
    from django.db import connection, transaction

    lock, update, audit = BARE_TSQL
    with transaction.atomic(), connection.cursor() as cursor:
        put_receipt(cursor, change_id, rows)
        cursor.execute(lock, [json.dumps(rows), TENANT])
        assert len(cursor.fetchall()) == len(rows)
        cursor.execute(update, [json.dumps(rows), TENANT])
        back = cursor.fetchall()
        assert len(back) == len(rows)
        cursor.execute(audit, [change_id, json.dumps([list(row) for row in back])])


def bare_sql(change_id: str, rows: list[tuple[int, int, int]]) -> None:
    """(b): three statements for the rows, one for the receipt; no comparison of what came back but its count."""
    from django.db import connection, transaction

    if connection.vendor == "microsoft":
        return bare_tsql(change_id, rows)
    postgresql = connection.vendor == "postgresql"
    lock = " FOR NO KEY UPDATE OF l" if postgresql else ""
    if postgresql:
        columns = [list(column) for column in zip(*rows, strict=True)]
        arrays = "%s::bigint[], %s::bigint[], %s::bigint[]"
        plan = f"SELECT * FROM unnest({arrays}) AS p(id, revision, qty)"
        changed = f"SELECT * FROM unnest({arrays}, %s::text[]) AS c(id, revision, qty, state)"
    else:
        columns = [json.dumps(rows)]
        names = ("id", "revision", "qty", "state")
        fields = [f"json_extract(value, '$[{at}]') AS {name}" for at, name in enumerate(names)]
        plan = f"SELECT {', '.join(fields[:3])} FROM json_each(%s)"
        changed = f"SELECT {', '.join(fields)} FROM json_each(%s)"
    with transaction.atomic(), connection.cursor() as cursor:
        put_receipt(cursor, change_id, rows)
        cursor.execute(
            f"WITH p AS MATERIALIZED ({plan}) SELECT l.id, l.revision, l.qty, l.state FROM portal_orderline l"
            f" JOIN p ON l.id = p.id WHERE l.tenant = %s ORDER BY l.id{lock}",
            [*columns, TENANT],
        )
        assert len(cursor.fetchall()) == len(rows)
        cursor.execute(
            f"WITH p AS MATERIALIZED ({plan}) UPDATE portal_orderline SET state = 'cancelled',"
            " revision = portal_orderline.revision + 1 FROM p WHERE portal_orderline.id = p.id AND tenant = %s"
            " AND portal_orderline.revision = p.revision AND portal_orderline.qty = p.qty AND state = 'pending'"
            " RETURNING portal_orderline.id, portal_orderline.revision, portal_orderline.qty, state",
            [*columns, TENANT],
        )
        back = cursor.fetchall()
        assert len(back) == len(rows)
        returned = [list(column) for column in zip(*back, strict=True)] if postgresql else [json.dumps(back)]
        cursor.execute(
            f"{AUDIT} SELECT %s, id, revision - 1, revision, qty, 'pending', state FROM ({changed}) AS c",
            [change_id, *returned],
        )


def median_apply(call: Callable[..., None], count: int, *, repeats: int) -> float:
    """Return the median of applying a fresh batch of this size, after one that is not counted."""
    batches = [(f"BENCH-{next(_numbers)}", fresh_targets(count)) for _ in range(repeats + 1)]
    taken = [seconds(lambda batch=batch: call(*batch)) for batch in batches]
    return statistics.median(taken[1:])


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield the figures; the bars are PostgreSQL's, at 10,000 targets and 100,000 of them."""
    for count in (2, 100, 1_000, 10_000):
        size = max(2, int(count * scale))
        barred = vendor == "postgresql" and size >= 10_000
        engine = median_apply(with_engine, size, repeats=5)
        by_row = median_apply(row_by_row, size, repeats=2 if size >= 10_000 else 5)
        bare = median_apply(bare_sql, size, repeats=5)
        name = f"cancel_many, {size:,} targets"
        yield Figure(
            name, size / engine, "rows/s", "(a) a savepoint per row", by_row / engine, ">= 15" if barred else None
        )
        yield Figure(name, engine * 1000, "ms", "(b) bare set-based SQL", bare / engine, ">= 0.6" if barred else None)
    yield from reconciliation(vendor, scale)


def reconciliation(vendor: str, scale: float) -> Iterable[Figure]:
    """Compare 100,000 targets in ten receipts with the join that any comparison needs."""
    from django.db import connection

    from receipts.api import reconcile

    size = max(2, int(10_000 * scale))
    ids = []
    for _ in range(10):
        ids.append(f"BENCH-{next(_numbers)}")
        with_engine(ids[-1], fresh_targets(size))
    if vendor != "mssql":
        with connection.cursor() as cursor:
            # As the server does by itself within a minute; without statistics its plan is another one.
            cursor.execute("ANALYZE")

    def engine() -> None:
        assert sum(result.match for result in reconcile(change_ids=ids)) == size * 10

    def bare() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT a.target_id, a.revision_after, a.qty, a.state_after, l.id, l.revision, l.qty, l.state"
                " FROM receipts_audit a LEFT JOIN portal_orderline l ON l.id = a.target_id AND l.tenant = 'bench'"
                f" WHERE a.change_id IN ({', '.join(['%s'] * len(ids))}) ORDER BY a.change_id, a.target_id",
                ids,
            )
            assert len(cursor.fetchall()) == size * 10

    def engine_with_items() -> None:
        assert sum(len(result.items) for result in reconcile(change_ids=ids)) == size * 10

    mine, join, itemised = median_seconds(engine), median_seconds(bare), median_seconds(engine_with_items)
    bar = "<= 3" if vendor == "postgresql" and scale >= 1 else None
    yield Figure(f"reconcile, {size * 10:,} targets", mine * 1000, "ms", "the bare join", mine / join, bar)
    name = f"reconcile, {size * 10:,} targets, each item looked at"
    yield Figure(name, itemised * 1000, "ms", "the bare join", itemised / join)
