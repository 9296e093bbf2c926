"""
Receipts, their audit rows, stored plans, stored reconciliations, and the log in which receipts are sealed.

Receipts, audit rows, leaves and checkpoints are append-only: triggers of migration 0002 refuse UPDATE and DELETE.
"""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from kwit.db.fields import ExactCharField, UtcDateTimeField, UtcNow

from .querysets import (
    CLOSED_STATES,
    OPEN_STATES,
    ChangeQuerySet,
    Found,
    PlanQuerySet,
    PlanState,
    RunOutcome,
    RunQuerySet,
)


class Change(models.Model):
    """One receipt: a change that was committed."""

    change_id = ExactCharField(max_length=64, primary_key=True)
    kind = ExactCharField(max_length=20)
    tenant = ExactCharField(max_length=64)
    targets = models.JSONField()
    digest = models.CharField(max_length=64)
    # Who applied it; author and approver where it was a stored plan.
    actor = models.CharField(max_length=150, db_default="", blank=True)
    author = models.CharField(max_length=150, db_default="", blank=True)
    approver = models.CharField(max_length=150, db_default="", blank=True)
    reason = models.TextField(db_default="", blank=True)
    created_at = UtcDateTimeField(db_default=UtcNow())

    objects = ChangeQuerySet.as_manager()

    class Meta:
        db_table = "receipts_changes"
        verbose_name = _("receipt")
        verbose_name_plural = _("receipts")
        permissions = [("reconcile", "Can compare receipts with the rows of now"), ("export", "Can export receipts")]
        constraints = [models.CheckConstraint(condition=~Q(change_id=""), name="ck_receipts_change_id")]
        # The list's order under each of its filters.
        indexes = [
            models.Index(fields=["created_at", "change_id"], name="ix_receipts_change_created"),
            models.Index(fields=["kind", "created_at", "change_id"], name="ix_receipts_change_kind"),
            models.Index(fields=["tenant", "created_at", "change_id"], name="ix_receipts_change_tenant"),
            models.Index(fields=["tenant", "kind", "created_at", "change_id"], name="ix_receipts_change_both"),
        ]

    def __str__(self) -> str:
        return self.change_id


class Audit(models.Model):
    """One row that a change has changed: how the UPDATE found it, and how it left it."""

    # No index of its own: uq_receipts_audit_target begins with it.
    change = models.ForeignKey(Change, on_delete=models.PROTECT, related_name="audit", db_index=False)
    target_id = models.BigIntegerField()
    # NULL where a kind does not compare it.
    revision_before = models.BigIntegerField(null=True)
    revision_after = models.BigIntegerField(null=True)
    # One column for before and after: a kind never sets the qty that it compares (check receipts.E012).
    qty = models.BigIntegerField(null=True)
    state_before = models.CharField(max_length=40, db_default="")
    state_after = models.CharField(max_length=40, db_default="")
    # Of a kind that names its fields: {field: {"before": …, "after": …}} of each that it compares or sets.
    fields = models.JSONField(null=True)

    objects = models.Manager()

    class Meta:
        db_table = "receipts_audit"
        verbose_name = _("audit row")
        verbose_name_plural = _("audit rows")
        constraints = [
            models.UniqueConstraint(fields=["change", "target_id"], name="uq_receipts_audit_target"),
            models.CheckConstraint(
                condition=Q(revision_after__gt=F("revision_before")), name="ck_receipts_audit_revision"
            ),
            models.CheckConstraint(
                condition=Q(fields__isnull=False)
                | Q(revision_before__isnull=False, revision_after__isnull=False, qty__isnull=False),
                name="ck_receipts_audit_values",
            ),
        ]
        # Whether another receipt has left a row with the same revision.
        indexes = [models.Index(fields=["target_id", "revision_after"], name="ix_receipts_audit_revision")]

    def __str__(self) -> str:
        return f"{self.change_id}/{self.target_id}"


class StoredPlan(models.Model):
    """One plan kept in the database until two people agree: draft, approved, then applied or refused."""

    change_id = ExactCharField(max_length=64)
    kind = ExactCharField(max_length=20)
    tenant = ExactCharField(max_length=64)
    targets = models.JSONField()
    # So that a list need not read ten thousand targets to say how many they are; NULL: written by plain SQL.
    target_count = models.IntegerField(null=True, blank=True)
    digest = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=PlanState.choices, db_default=PlanState.DRAFT)
    author = models.CharField(max_length=150)
    # The user's key beside the name, which may change hands; empty for somebody who is none of the site's users.
    author_key = models.CharField(max_length=64, db_default="", blank=True)
    # Everybody who wrote one of its contents: [[digest, key, name], …]; NULL: written by plain SQL, by its author.
    writers = models.JSONField(null=True, blank=True)
    #: How often its content was replaced: an approval is of this very edit.
    edits = models.IntegerField(db_default=0)
    edited_at = UtcDateTimeField(null=True, blank=True)
    approver = models.CharField(max_length=150, db_default="", blank=True)
    approver_key = models.CharField(max_length=64, db_default="", blank=True)
    approved_digest = models.CharField(max_length=64, db_default="", blank=True)
    approved_at = UtcDateTimeField(null=True, blank=True)
    reason = models.TextField(db_default="", blank=True)
    problems = models.JSONField(null=True, blank=True)
    created_at = UtcDateTimeField(db_default=UtcNow())
    decided_at = UtcDateTimeField(null=True, blank=True)
    # Who applied, rejected or withdrew it, and why.
    decided_by = models.CharField(max_length=150, db_default="", blank=True)
    decided_by_key = models.CharField(max_length=64, db_default="", blank=True)
    decision_reason = models.TextField(db_default="", blank=True)

    objects = PlanQuerySet.as_manager()

    class Meta:
        db_table = "receipts_plan"
        verbose_name = _("plan")
        verbose_name_plural = _("plans")
        # Drafting a plan is Django's own add_storedplan; nobody approves what he wrote (ck_receipts_plan_four_eyes).
        permissions = [("approve_plan", "Can approve plans of others"), ("apply_plan", "Can apply approved plans")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=PlanState.values), name="ck_receipts_plan_state"),
            # Four eyes, whoever writes: the approver is not the author.
            models.CheckConstraint(
                condition=~Q(author="")
                & ~Q(approver=F("author"))
                & (Q(author_key="") | ~Q(approver_key=F("author_key"))),
                name="ck_receipts_plan_four_eyes",
            ),
            # A draft has no approval; what is approved, applied or refused has one, and of this very content. A plan
            # that was closed otherwise may have had one.
            models.CheckConstraint(
                condition=Q(approver="", approver_key="", approved_digest="", approved_at__isnull=True)
                & ~Q(state__in=[PlanState.APPROVED, PlanState.APPLIED, PlanState.REFUSED])
                | ~Q(state=PlanState.DRAFT)
                & ~Q(approver="")
                & Q(approved_digest=F("digest"), approved_at__isnull=False),
                name="ck_receipts_plan_approval",
            ),
            models.CheckConstraint(
                condition=Q(state__in=OPEN_STATES, decided_at__isnull=True)
                | Q(state__in=CLOSED_STATES, decided_at__isnull=False)
                | Q(state=PlanState.REFUSED, decided_at__isnull=False, problems__isnull=False),
                name="ck_receipts_plan_decided",
            ),
        ]
        indexes = [
            models.Index(fields=["change_id"], name="ix_receipts_plan_change"),
            # The list, newest first, whole or of one state, kind or tenant.
            models.Index(fields=["tenant", "id"], name="ix_receipts_plan_tenant"),
            models.Index(fields=["tenant", "state", "id"], name="ix_receipts_plan_tenant_state"),
            models.Index(fields=["state", "id"], name="ix_receipts_plan_state"),
            models.Index(fields=["kind", "id"], name="ix_receipts_plan_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.change_id} ({self.state})"


class Reconciliation(models.Model):
    """One comparison of a receipt with the rows as they were at that moment."""

    change = models.ForeignKey(Change, on_delete=models.PROTECT, related_name="reconciliations", db_index=False)
    # The receipt's, which never changes: a tenant's history is one range of one index.
    tenant = ExactCharField(max_length=64, db_default="", blank=True)
    taken_at = UtcDateTimeField(db_default=UtcNow())
    actor = models.CharField(max_length=150, db_default="", blank=True)
    match = models.IntegerField()
    changed = models.IntegerField()
    missing = models.IntegerField()
    # Targets of which receipt and audit disagree.
    broken = models.IntegerField(db_default=0)
    # Only the items that differ: a match says nothing that the receipt does not say.
    items = models.JSONField()

    objects = models.Manager()

    class Meta:
        db_table = "receipts_reconciliation"
        verbose_name = _("reconciliation")
        verbose_name_plural = _("reconciliations")
        constraints = [
            models.CheckConstraint(
                condition=Q(match__gte=0, changed__gte=0, missing__gte=0, broken__gte=0),
                name="ck_receipts_reconciliation_counts",
            ),
        ]
        indexes = [
            models.Index(fields=["change", "taken_at"], name="ix_receipts_reconciliation"),
            models.Index(fields=["tenant", "id"], name="ix_receipts_recon_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.change_id} at {self.taken_at}"


class Verdict(models.Model):
    """
    What the latest reconciliation of one receipt found.

    The receipt itself is never written again, and the history of a receipt may be long: what differs now is asked here.
    """

    change = models.OneToOneField(Change, on_delete=models.PROTECT, primary_key=True, related_name="verdict")
    # The receipt's, which never change: a list of what differs is one range of one index.
    kind = ExactCharField(max_length=20)
    tenant = ExactCharField(max_length=64)
    created_at = UtcDateTimeField()
    reconciliation = models.ForeignKey(Reconciliation, on_delete=models.PROTECT, related_name="+", db_index=False)
    # A text: SQLite enters no index for a bare boolean.
    found = models.CharField(max_length=10, choices=Found.choices)

    objects = models.Manager()

    class Meta:
        db_table = "receipts_verdict"
        # Whoever sees receipts sees it; nobody is given it alone.
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=Q(found__in=Found.values), name="ck_receipts_verdict_found")]
        indexes = [
            models.Index(fields=["found", "created_at", "change"], name="ix_receipts_verdict"),
            models.Index(fields=["found", "tenant", "created_at", "change"], name="ix_receipts_verdict_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.change_id}: {self.found}"


class ReconciliationRun(models.Model):
    """One comparison of all receipts of some tenants, carried out by a process of its own."""

    # Empty: of all tenants; else what stands for exactly these tenants.
    scope = ExactCharField(max_length=64, db_default="", blank=True)
    tenants = models.JSONField(null=True, blank=True)
    actor = models.CharField(max_length=150, db_default="", blank=True)
    outcome = models.CharField(max_length=10, choices=RunOutcome.choices, db_default=RunOutcome.RUNNING)
    total = models.BigIntegerField(null=True, blank=True)
    done = models.BigIntegerField(db_default=0)
    differing = models.BigIntegerField(db_default=0)
    #: Receipts of a kind that no app declares: they cannot be compared.
    undeclared = models.BigIntegerField(db_default=0)
    started_at = UtcDateTimeField(db_default=UtcNow())
    beat_at = UtcDateTimeField(db_default=UtcNow())
    ended_at = UtcDateTimeField(null=True, blank=True)
    host = models.CharField(max_length=255, db_default="", blank=True)
    pid = models.BigIntegerField(null=True, blank=True)
    error = models.TextField(db_default="", blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        db_table = "receipts_reconciliation_run"
        verbose_name = _("reconciliation of all")
        verbose_name_plural = _("reconciliations of all")
        # Seen with view_reconciliation, started with reconcile.
        default_permissions = ()
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=RunOutcome.values), name="ck_receipts_run_outcome"),
            models.CheckConstraint(
                condition=Q(outcome=RunOutcome.RUNNING, ended_at__isnull=True)
                | ~Q(outcome=RunOutcome.RUNNING) & Q(ended_at__isnull=False),
                name="ck_receipts_run_ended",
            ),
            # One at a time: the second who asks is shown the first.
            models.UniqueConstraint(
                fields=["scope"], condition=Q(outcome=RunOutcome.RUNNING), name="uq_receipts_run_running"
            ),
        ]
        indexes = [models.Index(fields=["scope", "id"], name="ix_receipts_run_scope")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S}"


class Leaf(models.Model):
    """
    One sealed receipt: a leaf of the Merkle tree.

    The constraints keep the sequence without gaps: a leaf cannot stand where none stands before it.
    """

    position = models.BigIntegerField(primary_key=True)
    previous = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    # No foreign key: sealing takes no lock on receipts, and an audit still names a receipt that was deleted.
    change_id = ExactCharField(max_length=64, unique=True)
    #: SHA-256 of the receipt in its canonical form, version 2: the log entry.
    digest = models.CharField(max_length=64)
    #: SHA-256 of its audit rows alone, so that an audit can say which part was changed; not part of the tree.
    audit_digest = models.CharField(max_length=64)
    #: The hashes of the subtrees that this leaf completes, in hexadecimal, its own first; at most 62 levels.
    hashes = models.CharField(max_length=62 * 64)

    objects = models.Manager()

    class Meta:
        db_table = "receipts_leaf"
        verbose_name = _("sealed receipt")
        verbose_name_plural = _("sealed receipts")
        default_permissions = ()
        constraints = [
            models.CheckConstraint(
                condition=Q(position=0, previous__isnull=True)
                | Q(position__gt=0, previous__isnull=False, position=F("previous") + 1),
                name="ck_receipts_leaf_sequence",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position}: {self.change_id}"


class Checkpoint(models.Model):
    """One signed head of the tree: its first ``size`` leaves and their root. Numbered without gaps from 1."""

    number = models.BigIntegerField(primary_key=True)
    previous = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    size = models.BigIntegerField()
    last_leaf = models.ForeignKey(Leaf, on_delete=models.PROTECT, related_name="+", db_index=False)
    root = models.CharField(max_length=64)
    #: The checkpoint with the log's own signatures, as it is published.
    note = models.TextField()
    #: Whether all receipts were looked through for unsealed ones, not only the recent.
    is_full = models.BooleanField()
    created_at = UtcDateTimeField(db_default=UtcNow())

    objects = models.Manager()

    class Meta:
        db_table = "receipts_checkpoint"
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")
        default_permissions = ()
        constraints = [
            models.CheckConstraint(
                condition=Q(number=1, previous__isnull=True)
                | Q(number__gt=1, previous__isnull=False, number=F("previous") + 1),
                name="ck_receipts_checkpoint_sequence",
            ),
            models.CheckConstraint(condition=Q(size=F("last_leaf") + 1), name="ck_receipts_checkpoint_size"),
        ]
        indexes = [
            # The first checkpoint that covers a leaf.
            models.Index(fields=["size", "number"], name="ix_receipts_checkpoint_size"),
            # A step of notify that mails checkpoints looks for them by their time.
            models.Index(fields=["created_at"], name="ix_receipts_checkpoint_created"),
        ]

    def __str__(self) -> str:
        return f"{self.number} ({self.size})"


class Cosignature(models.Model):
    """A witness's signature of a checkpoint."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="cosignatures", db_index=False)
    name = ExactCharField(max_length=255)
    key_id = models.CharField(max_length=8)
    #: The line of the note.
    line = models.TextField()
    created_at = UtcDateTimeField(db_default=UtcNow())

    objects = models.Manager()

    class Meta:
        db_table = "receipts_cosignature"
        verbose_name = _("cosignature")
        verbose_name_plural = _("cosignatures")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "name", "key_id"], name="uq_receipts_cosignature"),
        ]
        # What a witness has signed last.
        indexes = [models.Index(fields=["name", "checkpoint"], name="ix_receipts_cosignature_name")]

    def __str__(self) -> str:
        return f"{self.checkpoint_id}: {self.name}"


class Publication(models.Model):
    """A checkpoint that was handed to one place outside the database."""

    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="publications", db_index=False)
    target = ExactCharField(max_length=255)
    created_at = UtcDateTimeField(db_default=UtcNow())

    objects = models.Manager()

    class Meta:
        db_table = "receipts_publication"
        verbose_name = _("publication")
        verbose_name_plural = _("publications")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["target", "checkpoint"], name="uq_receipts_publication")]

    def __str__(self) -> str:
        return f"{self.checkpoint_id}: {self.target}"
