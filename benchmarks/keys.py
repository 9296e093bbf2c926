"""Keys that are no integers: a pass over events with UUIDs, and with digests, against the same events with integers."""

import statistics
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from benchmarks.harness import Figure, seconds
from benchmarks.notify import delete, maintain

#: Events of each kind.
EVENTS = 20_000
#: How often each kind's pass runs; a ratio is the median of the pairs.
ROUNDS = 7


def run(vendor: str, scale: float) -> Iterator[Figure]:
    """Yield the time of a pass over new events by kind of key, and of the next one, which finds nothing new."""
    from notify import steps

    number = int(EVENTS * scale)
    kinds = make_kinds(number)
    before, steps._registered = steps._registered, {}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    try:
        for place in range(ROUNDS):
            # Who goes first alternates, so that none always meets the warmer database.
            for kind in kinds if place % 2 else reversed(kinds):
                times[kind].append(time_passes(vendor, kinds[kind], number))
    finally:
        steps._registered = before
    for kind, name in (("integer", "integer"), ("uuid", "UUID"), ("digest", "digest")):
        for place, what in enumerate((f"pass, {number:,} new events", f"pass, {number:,} known events in scope")):
            own, reference = ([pair[place] for pair in times[each]] for each in (kind, "integer"))
            ratio = statistics.median(one / other for one, other in zip(own, reference, strict=True))
            told = {} if kind == "integer" else {"reference": "integer keys", "ratio": ratio}
            bar = "<= 1.2" if (kind, place) == ("uuid", 0) else None
            yield Figure(f"{what}, {name} keys", statistics.median(own), "s", **told, bar=bar)  # type: ignore[arg-type]


def time_passes(vendor: str, step: Any, number: int) -> tuple[float, float]:
    """Return how long a pass over new events takes, and the one after it."""
    from notify import steps
    from notify.passes.runner import run_pass

    steps._registered = {}
    steps.register(step)
    delete(vendor, "notify_mail_queue", "notify_control", "notify_run_log")
    maintain(vendor)
    reports: list[Any] = []
    first = seconds(lambda: reports.append(run_pass()))
    maintain(vendor)
    second = seconds(lambda: reports.append(run_pass()))
    assert [report.steps[0].mails for report in reports] == [number, 0], reports
    return first, second


def make_kinds(number: int) -> dict[str, Any]:
    """Return a step for each kind of key; all have the same events."""
    from django.db import connection, models
    from django.db.models import F, Value
    from django.utils import timezone

    from notify.steps import DigestKey, Step, UuidKey

    fields = {"title": models.CharField(max_length=50), "happened_at": models.DateTimeField(db_index=True)}
    primary: dict[str, Any] = {"integer": models.BigAutoField, "uuid": models.UUIDField, "digest": models.UUIDField}
    keys: dict[str, Any] = {"integer": F("pk"), "uuid": UuidKey("pk"), "digest": DigestKey("title", "pk")}
    kinds, start = {}, timezone.now() - timedelta(hours=20)
    for name, key in keys.items():
        meta = type("Meta", (), {"app_label": "benchmarks", "db_table": f"bench_{name}"})
        own = {each: field.clone() for each, field in fields.items()}
        id_field = primary[name](primary_key=True)
        attributes = {"__module__": __name__, "Meta": meta, "id": id_field, **own}
        model: Any = type(f"Bench{name}", (models.Model,), attributes)
        with connection.schema_editor() as editor:
            editor.create_model(model)
        model.objects.bulk_create(
            (
                model(
                    title=f"N{place}",
                    happened_at=start + timedelta(milliseconds=place),
                    **({} if name == "integer" else {"id": uuid4()}),
                )
                for place in range(number)
            ),
            batch_size=1000,
        )

        def events(self: Any, scope: Any, model: Any = model, key: Any = key) -> Any:
            return model.objects.values(
                key=key,
                event_at=F("happened_at"),
                recipients=Value("a@example.org"),
                advice=F("title"),
                order_number=F("title"),
            )

        kinds[name] = type(f"Step{name}", (Step,), {"kind": name, "template": "advice", "events": events})
    return kinds
