"""Whether sealing goes on: what ``doctor`` and the metric say, and the job that ``notify_work`` runs."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router
from django.db.models import Count

from kwit import jobs
from kwit.db.fields import JSONItems

from ..conf import load_settings
from ..dialects import dialect_of
from ..errors import ReceiptsError
from ..models import Audit, Change, Checkpoint, Leaf, Verdict
from ..querysets import Found
from ..receipt import inspect_change
from .keys import load_keys
from .log import Inconsistent, newest_checkpoint
from .notes import Note
from .sealer import check_continues, head_of, scan_start, unsealed

#: Seconds between two runs of the job; a run without new receipts costs a few short queries.
EVERY_S = 60.0
#: A receipt should be sealed within a day, and an hour for the run itself.
UNSEALED_MAX = timedelta(hours=25)
#: Receipts whose audit rows ``doctor`` counts, the newest; and those of them that it reads row by row.
RECEIPTS_COMPARED = 1000
RECEIPTS_READ = 100
TARGETS_READ = 50_000
NAMED_MAX = 5


def oldest_unsealed_at(alias: str) -> datetime | None:
    """Return when the oldest receipt without a leaf was committed, as far as an ordinary run looks."""
    is_first = not Checkpoint.objects.using(alias).exists()
    since = None if is_first else scan_start(alias, is_full=False)
    found: datetime | None = unsealed(alias, since=since).values_list("created_at", flat=True).first()
    return found


def unsealed_s(alias: str) -> float:
    """Return how old the oldest unsealed receipt is, in seconds by the database's clock; 0 when there is none."""
    oldest = oldest_unsealed_at(alias)
    if oldest is None:
        return 0.0
    return max(0.0, (dialect_of(connections[alias]).now(connections[alias]) - oldest).total_seconds())


# A deploy check: what signs is not imported by every command.
@register("kwit", deploy=True)
def check_keys(**kwargs: Any) -> list[CheckMessage]:
    """Refuse keys that cannot be read, and ``cryptography`` when it is missing where a key is to sign."""
    try:
        keys = load_keys()
        for key in keys.signing:
            key.sign("")
    except ReceiptsError as error:
        return [Error(f"the keys of the log cannot be read: {error}", hint="run receipts_key new", id="receipts.E040")]
    except ImportError as error:
        hint = "install the package 'cryptography'"
        return [Error(f"receipts cannot be sealed with a key: {error}", hint=hint, id="receipts.E041")]
    if load_settings().log_witnesses and not keys.witnesses:
        text = "LOG_WITNESSES names witnesses, but no verifier key of a witness is known"
        return [Error(text, hint="put their verifier keys into LOG_KEY_FILE", id="receipts.E042")]
    return []


@register(Tags.database, "kwit", deploy=True)
def check_log(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Look whether receipts agree with their audit rows, and whether sealing goes on."""
    mine = [alias for alias in databases or () if router.allow_migrate_model(alias, Change)]
    return [message for alias in mine if has_tables(alias) for message in log_flaws(alias)]


def has_tables(alias: str) -> bool:
    """Whether the tables are there; when they are not, another check says so."""
    tables = set(connections[alias].introspection.table_names())
    return {model._meta.db_table for model in (Change, Leaf, Checkpoint, Verdict)} <= tables


def log_flaws(alias: str) -> Iterator[CheckMessage]:
    """Find what is wrong with the receipts and the log of one database."""
    if names := broken_receipts(alias):
        yield Error(
            f"{alias}: receipts disagree with their own audit rows: {', '.join(names)}",
            hint="run manage.py reconcile on them; compare the tables with a backup",
            id="receipts.E043",
        )
    age = timedelta(seconds=unsealed_s(alias))
    if age > UNSEALED_MAX:
        yield Warning(
            f"{alias}: a receipt has not been sealed for {age.total_seconds() / 3600:.0f} hours",
            hint="run manage.py receipts_seal, by cron or notify_work",
            id="receipts.W044",
        )
    newest = newest_checkpoint(alias)
    if newest is None:
        return
    yield from log_state_flaws(alias, newest)


def log_state_flaws(alias: str, newest: Checkpoint) -> Iterator[CheckMessage]:
    """Find what is wrong with the newest checkpoint, and with what was published."""
    from .publishing import check_published

    try:
        check_continues(head_of(newest), alias)
        for target in load_settings().log_publish.split():
            check_published(target, alias)
    except Inconsistent as error:
        hint = "run manage.py receipts_audit_log --since with the checkpoint that was kept outside"
        yield Error(f"{alias}: the log of receipts does not continue: {error}", hint=hint, id="receipts.E045")
    try:
        note = Note.parse(newest.note)
        is_foreign = bool(note.signatures) and not note.signers(load_keys().own)
    except (ReceiptsError, ImportError):
        is_foreign = True
    if is_foreign:
        yield Warning(
            f"{alias}: the newest checkpoint is signed by no key that this site knows",
            hint="put the verifier key of the retired key into LOG_KEY_FILE",
            id="receipts.W046",
        )


def broken_receipts(alias: str) -> list[str]:
    """Return receipts that disagree with their audit rows: by their last reconciliation, or among the newest."""
    verdicts = Verdict.objects.using(alias).filter(found=Found.BROKEN).order_by("-created_at", "change_id")
    named = dict.fromkeys(verdicts.values_list("change_id", flat=True)[:NAMED_MAX])
    newest = Change.objects.using(alias).order_by("-created_at", "-change_id")
    targets = dict(newest.values_list("pk", JSONItems("targets"))[:RECEIPTS_COMPARED])
    audit = Audit.objects.using(alias).filter(change_id__in=list(targets)).order_by()
    audited = dict(audit.values_list("change_id").annotate(Count("pk")))
    named |= dict.fromkeys(pk for pk, number in targets.items() if number != audited.get(pk, 0))
    read = 0
    for pk in list(targets)[:RECEIPTS_READ]:
        read += audited.get(pk, 0)
        if read > TARGETS_READ or len(named) >= NAMED_MAX:
            break
        receipt = inspect_change(change_id=pk, using=alias)
        if receipt is not None and receipt.problems:
            named[pk] = None
    return list(named)[:NAMED_MAX]


def run_job(is_stopping: Callable[[], bool]) -> object:
    """Seal what is committed."""
    # Imported by those who seal: it brings an HTTP client along.
    from .seal import seal_receipts

    return seal_receipts(is_stopping=is_stopping)


jobs.register(jobs.Job(name="receipts_seal", every_s=EVERY_S, run=run_job))
