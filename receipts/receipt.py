"""A receipt as it was committed, and whether it agrees with its audit rows. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from django.db import router

from .models import Audit, Change
from .plans.canonical import FieldTarget, Target, canonical_targets, digest, stored_targets


class AuditRow(NamedTuple):
    """One audit row as committed."""

    target_id: int
    revision_before: int
    revision_after: int
    qty: int
    state_before: str
    state_after: str
    #: Before and after of each field that the kind compares or sets; None for one of revision, qty and state only.
    fields: dict[str, dict[str, Any]] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        content = self._asdict()
        return {name: value for name, value in content.items() if name != "fields" or value is not None}

    def fields_text(self) -> str:
        """Return before and after of the fields, for a person."""
        pairs = (self.fields or {}).items()
        return ", ".join(f"{name} {one['before']} -> {one['after']}" for name, one in pairs)


class Disagreement(NamedTuple):
    """
    One way in which a receipt and its audit rows disagree; ``id`` is None when it is about the receipt as a whole.

    ``audit_missing``: a target without its audit row. ``target_missing``: an audit row without its target.
    ``audit_differs``: an audit row of other values than were approved. ``digest_differs``, ``targets_unreadable``.
    """

    id: int | None
    problem: str

    def __str__(self) -> str:
        return PROBLEM_TEXTS[self.problem] % {"id": self.id}


PROBLEM_TEXTS = {
    "audit_missing": "target %(id)s has no audit row",
    "target_missing": "audit row %(id)s has no target",
    "audit_differs": "audit row %(id)s is not of the approved revision and qty",
    "digest_differs": "the digest is not that of the content",
    "targets_unreadable": "the targets are not what Kwit writes",
}
#: Those that are about the receipt as a whole.
WHOLE_PROBLEMS = ("targets_unreadable", "digest_differs")


def readable_targets(stored: Any) -> tuple[Target, ...] | None:
    """Return targets from the form in which a receipt keeps them; None when plain SQL has written what is none."""
    try:
        targets = stored_targets(stored)
    except (AttributeError, KeyError, TypeError):
        return None
    return targets if all(is_readable(target) for target in targets) else None


def is_readable(target: Target) -> bool:
    """Whether the values of a target are such as a plan has."""
    if type(target.id) is not int:
        return False
    if isinstance(target, FieldTarget):
        return bool(target.values) and all(
            value is None or isinstance(value, str | int) for value in target.values.values()
        )
    return type(target.revision) is int and type(target.qty) is int


@dataclass(frozen=True)
class Receipt:
    """A receipt as committed; ``targets`` is empty when they are unreadable."""

    change_id: str
    kind: str
    tenant: str
    targets: tuple[Target, ...]
    digest: str
    actor: str
    author: str
    approver: str
    reason: str
    created_at: datetime
    audit: tuple[AuditRow, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the commands print it."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values |= {"targets": [row._asdict() for row in self.targets], "audit": [row.as_json() for row in self.audit]}
        return values | {"problems": [one._asdict() for one in self.problems]}

    @property
    def is_genuine(self) -> bool:
        """Whether the digest is that of the content."""
        targets = canonical_targets(self.targets)
        return self.digest == digest(change_id=self.change_id, kind=self.kind, tenant=self.tenant, targets=targets)

    @cached_property
    def problems(self) -> tuple[Disagreement, ...]:
        """How it disagrees with itself and with its audit rows; empty when it does not."""
        whole = () if self.is_genuine else (Disagreement(None, "digest_differs"),)
        rows = [(row.target_id, row.revision_before, row.qty) for row in self.audit]
        return (*whole, *disagreements(self.targets, rows))


def disagreements(targets: Sequence[Target], audit: Sequence[tuple[int, int, int | None]]) -> list[Disagreement]:
    """Compare targets with audit rows (id, revision before, qty), by id; in the order of ids."""
    approved = {target.id: (target.revision, target.qty) for target in targets}
    audited = {pk: values for pk, *values in audit}
    found = [Disagreement(pk, "audit_missing") for pk in approved.keys() - audited.keys()]
    found += [Disagreement(pk, "target_missing") for pk in audited.keys() - approved.keys()]
    both = approved.keys() & audited.keys()
    found += [Disagreement(pk, "audit_differs") for pk in both if approved[pk] != tuple(audited[pk])]
    return sorted(found, key=lambda one: one.id or 0)


def inspect_change(*, change_id: str, tenant: str | None = None, using: str | None = None) -> Receipt | None:
    """
    Return the receipt of a change with its audit rows, or None when there is none (for this tenant, if one is given).

    None means "not committed as far as can be seen now": a transaction that is still open may yet commit it.
    """
    alias = using or router.db_for_write(Change)
    found = Change.objects.using(alias).filter(pk=change_id)
    change = (found if tenant is None else found.filter(tenant=tenant)).first()
    # SQL Server takes a key with a blank at its end for the same.
    if change is None or change.change_id != change_id or tenant not in (None, change.tenant):
        return None
    audit = Audit.objects.using(alias).filter(change_id=change_id).order_by("target_id")
    return Receipt(
        change_id=change.change_id,
        kind=change.kind,
        tenant=change.tenant,
        targets=readable_targets(change.targets) or (),
        digest=change.digest,
        actor=change.actor,
        author=change.author,
        approver=change.approver,
        reason=change.reason,
        created_at=change.created_at,
        audit=tuple(AuditRow(*row) for row in audit.values_list(*AuditRow._fields)),
    )
