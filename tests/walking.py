"""Every address of the site, filled with the keys of rows that stand there: for tests that try them all."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from kwit.models import Action
from kwit.people.tokens import make_token
from notify.models import Attempt, Channel, Control, Delivery, MailQueue, RunLog, Suppression, TaskQueue, Wording
from portal.models import OrderLine
from receipts.api import Target, cancel_many, reconcile, record_reconciliation, store_plan
from receipts.models import Change, ReconciliationRun
from receipts.runs import ask_for_run
from tests.factories import make_comment, make_line, make_order

#: An argument of a route, ``<int:pk>`` or ``<pk>``.
ARGUMENT = re.compile(r"<(?:(\w+):)?(\w+)>")
#: Addresses that end the walk itself, or that belong to no page; ``r`` is Django's "view on site", which fails for a
#: model of the tests whose key is a UUID.
LEFT_OUT = re.compile(r"(^|/)(logout|password_change|static|media|r)(/|$)")
#: Apps whose rows a page may show.
OURS = ("kwit", "notify", "receipts", "portal")
MISSING = {"int": "987654321", "uuid": "00000000-0000-4000-8000-00000000dead", "str": "no-such-thing"}


@dataclass(frozen=True)
class Place:
    """One address: with the keys of rows that are there, and, when it has arguments, with keys of none."""

    route: str
    path: str
    missing: str = ""


@dataclass
class Rows:
    """The rows of one owner, each with his word in all its texts."""

    word: str
    tenant: str
    pass_id: UUID = field(default_factory=uuid4)
    key: int = 0
    found: dict[type[Model], list[Any]] = field(default_factory=dict)

    def add(self, *rows: Any) -> Any:
        """Remember rows; return the first."""
        for row in rows:
            self.found.setdefault(type(row), []).append(row)
        return rows[0]

    def every_key(self) -> list[str]:
        """Return every key, as addresses have it."""
        return [quote(str(row.pk)) for rows in self.found.values() for row in rows]


def fill(word: str, *, tenant: str, key: int) -> Rows:
    """Make rows of every kind for a tenant; ``word`` stands in each text, ``key`` is the event's."""
    rows, mail = Rows(word, tenant, key=key), f"{word.lower()}@example.org"
    control = rows.add(Control.objects.create(kind="comment", key=key, tenant=tenant, recipients=mail))
    texts = {"subject": word, "recipients": [mail], "problem": word, "payload": {"note": word}, "operator": word}
    sent = {"message_text": word, "message_html": f"<p>{word}</p>", "template": "comment"}
    for state in ("blocked", "queued", "failed", "uncertain", "sent"):
        row = MailQueue(control=control, tenant=tenant, pass_id=rows.pass_id, state=state, **texts, **sent)
        row.save()
        rows.add(row)
        rows.add(Attempt.objects.create(mail=row, number=1, recipient=mail, outcome="refused", text=word))
    task = {"title": word, "assignee": word, "payload": {"note": word}, "pass_id": rows.pass_id}
    rows.add(TaskQueue.objects.create(control=control, tenant=tenant, **task))
    rows.add(TaskQueue.objects.create(control=control, tenant=tenant, **task, done_by=word, done_at=timezone.now()))
    rows.add(Action.objects.create(actor=word, name=word, subject=word, scope=word, note=word, tenant=tenant))
    rows.add(make_token(User.objects.create_user(word), name=word)[0])
    run, _ = ask_for_run(tenants=[tenant], actor=word)
    ReconciliationRun.objects.try_end(run.pk, outcome="failed", error=word)
    rows.add(run)
    fill_business(rows)
    return rows


def fill_business(rows: Rows) -> None:
    """Make a tenant's orders, a draft, a receipt and a reconciliation."""
    word = rows.word
    order = rows.add(make_order(tenant=rows.tenant, number=word))
    lines = [rows.add(make_line(order=order, tenant=rows.tenant)) for _ in range(3)]
    rows.add(make_comment(line=lines[0], body=word, author=word))
    change_id = f"{word}-1"
    done = [Target(id=line.pk, revision=line.revision, qty=line.qty) for line in lines[:2]]
    cancel_many(change_id=change_id, tenant=rows.tenant, targets=done, actor=word, reason=word)
    OrderLine.objects.filter(pk=lines[0].pk).update(qty=7, revision=9)
    change = rows.add(Change.objects.get(pk=change_id))
    rows.add(*change.audit.all())
    record_reconciliation(next(iter(reconcile(change_ids=[change_id]))), actor=word)
    rows.add(*change.reconciliations.all())
    left = [Target(id=lines[2].pk, revision=lines[2].revision, qty=lines[2].qty)]
    plan = {"kind": "cancel", "tenant": rows.tenant, "author": word, "reason": word, "targets": left}
    rows.add(store_plan(**plan, change_id=f"{word}-2"))


def fill_installation(word: str) -> Rows:
    """Make rows of what belongs to no tenant."""
    rows, now = Rows(word, ""), timezone.now()
    log = {"pass_id": rows.pass_id, "started_at": now, "ended_at": now, "ms": 5, "host": word}
    rows.add(RunLog.objects.create(**log, step="pass", outcome="error", error=word))
    rows.add(RunLog.objects.create(**log, step="comment", outcome="error", error=word))
    skip = f"SKIPPED: lock code -1, held by {word}"
    rows.add(RunLog.objects.create(**log | {"pass_id": uuid4()}, step="pass", outcome="skipped", error=skip))
    until = now + timedelta(hours=1)
    rows.add(Channel.objects.create(name=word, reason=word, paused_at=now, paused_until=until))
    rows.add(Delivery.objects.create(worker=word, error=word))
    rows.add(Suppression.objects.create(address=f"{word.lower()}@example.net", reason=word))
    rows.add(Wording.objects.create(kind="comment", language="pl", subject=word, text=word, html=word, author=word))
    rows.add(Control.objects.create(kind="comment", key=31337, recipients=word))
    rows.add(Action.objects.create(actor=word, name=word, subject=word, scope=word))
    return rows


def places(rows: Rows) -> Iterator[Place]:
    """Yield every address of the site, with these rows in the place of its arguments."""
    for route, pattern in routes(get_resolver()):
        if "(" in route or LEFT_OUT.search(route):
            continue  # a regular expression is the admin's last word for what is nothing
        if not ARGUMENT.search(route):
            yield Place(route, f"/{route}")
            continue
        for values in arguments(route, pattern, rows):
            path, missing = route, route
            for kind, name in ARGUMENT.findall(route):
                # The name of an action is no key: it stays, so that the answer differs by the row alone.
                absent = values[name] if kind == "slug" else MISSING.get(kind or "str", MISSING["str"])
                path = re.sub(rf"<(?:\w+:)?{name}>", values[name], path)
                missing = re.sub(rf"<(?:\w+:)?{name}>", absent, missing)
            yield Place(route, f"/{path}", f"/{missing}" if missing != path else "")


def routes(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield every route below a resolver."""
    for one in resolver.url_patterns:
        route = prefix + str(one.pattern).removeprefix("^").removesuffix("$").removesuffix(r"\Z")
        if isinstance(one, URLResolver):
            yield from routes(one, route)
        else:
            yield route, one


def arguments(route: str, pattern: URLPattern, rows: Rows) -> Iterator[dict[str, str]]:
    """Yield what may stand in a route's places: a key of the model that the route names, else one of each model."""
    model, places = model_of(route), ARGUMENT.findall(route)
    found = [rows.found.get(model, [])] if model else list(rows.found.values())
    keys = [quote(str(some[0].pk)) for some in found if some]
    if not any(kind in ("", "int", "str", "path") for kind, _ in places):
        keys = keys[:1] or ["0"]  # nothing in it depends on a row
    for key in dict.fromkeys(keys):
        if "int" in dict(places) and not key.isdigit():
            continue
        for word in slug_words(model):
            special = {"uuid": str(rows.pass_id), "slug": word}
            yield {name: special.get(kind, str(rows.pass_id) if name == "pass_id" else key) for kind, name in places}
            if "slug" not in dict(places):
                break


def slug_words(model: type[Model] | None) -> list[str]:
    """Return the names of a model's actions."""
    page = admin.site._registry.get(model) if model else None
    return [act.name for act in getattr(page, "list_actions", ())] or ["no-such-thing"]


def model_of(route: str) -> type[Model] | None:
    """Return the model whose admin a route belongs to."""
    parts = route.split("/")
    if parts[0] != "admin" or len(parts) < 4:
        return None
    try:
        return apps.get_model(parts[1], parts[2])
    except LookupError:
        return None


def pages_of_ours() -> dict[type[Model], Any]:
    """Return the admin classes of our own models."""
    return {model: page for model, page in admin.site._registry.items() if model._meta.app_label in OURS}


def has_tenant(model: type[Model]) -> bool:
    """Whether a model has a tenant of its own."""
    try:
        model._meta.get_field("tenant")
    except FieldDoesNotExist:
        return False
    return True


def snapshot() -> dict[str, list[Any]]:
    """Return everything that our tables hold."""
    models = [model for label in OURS for model in apps.get_app_config(label).get_models()]
    return {model._meta.label: list(model._default_manager.order_by("pk").values()) for model in models}
