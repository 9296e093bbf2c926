"""
The control table, the run log, the two queues, and what became of each mail.

Plain SQL may read and insert: every default is in the database.
"""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils.translation import gettext_lazy as _

from kwit.db.fields import ExactCharField, TenantIndex, UtcDateTimeField, UtcNow

from .keys import ORIGINAL_KEY_UNITS_MAX
from .querysets import AttemptQuerySet, MailQueueQuerySet, RunLogQuerySet, SuppressionQuerySet, TaskQueueQuerySet
from .text import TENANT_UNITS_MAX

KIND_LENGTH_MAX = 10
#: UTF-16 code units, because that is what NVARCHAR(n) counts; 255 fits every mail client's list.
SUBJECT_UNITS_MAX = 255
#: Characters of an error or a warning that are kept: NVARCHAR(4000) is the longest that SQL Server keeps in the row.
ERROR_CHARS_MAX = 4000
#: Characters of ``host:pid:run``; a host name has at most 253 (RFC 1035), the rest is ours.
WORKER_LENGTH_MAX = 300
#: Characters of an address, RFC 5321 section 4.5.3.1 (a path is 256 octets with its brackets).
ADDRESS_LENGTH_MAX = 254
CHANNEL_LENGTH_MAX = 100
#: 128 bits in hexadecimal.
TOKEN_LENGTH = 32


class Control(models.Model):
    """
    One event that has had its message prepared. Never pruned: it is the only place asked "already notified?".

    ``original_key`` is what people call an event whose key is made of other columns (a UUID, a text); else empty.
    ``tenant`` is whose event it is, here and in the queues; empty: nobody's, so only who sees all tenants sees it.
    """

    kind = ExactCharField(max_length=KIND_LENGTH_MAX)
    key = models.BigIntegerField()
    key2 = models.BigIntegerField(db_default=0)
    original_key = models.CharField(max_length=ORIGINAL_KEY_UNITS_MAX, db_default="", blank=True)
    language = models.CharField(max_length=10, db_default="", blank=True)
    recipients = models.TextField(db_default="", blank=True)
    tenant = ExactCharField(max_length=TENANT_UNITS_MAX, db_default="", blank=True)
    created_at = UtcDateTimeField(db_default=UtcNow())
    #: The control row whose message covers this event as well (a step with ``coalesce``); NULL: its own.
    covered_by = models.ForeignKey(
        "self", on_delete=models.PROTECT, related_name="covers", null=True, blank=True, db_index=False
    )

    objects = models.Manager()

    class Meta:
        db_table = "notify_control"
        verbose_name = _("control row")
        verbose_name_plural = _("control table")
        constraints = [models.UniqueConstraint(fields=["kind", "key", "key2"], name="uq_notify_control_event")]
        indexes = [
            TenantIndex(fields=["tenant", "id"], name="ix_notify_control_tenant"),
            # From a message to the other events that it covers; most rows have none.
            models.Index(
                fields=["covered_by"], condition=Q(covered_by__isnull=False), name="ix_notify_control_covered"
            ),
        ]

    def __str__(self) -> str:
        if self.original_key:
            return f"{self.kind} {self.original_key}"
        return f"{self.kind} {self.key} {self.key2}" if self.key2 else f"{self.kind} {self.key}"


class Outcome(models.TextChoices):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"
    RUNNING = "running"


class RunLog(models.Model):
    """One step of one pass, or (step ``pass``) the whole of one."""

    WHOLE = "pass"

    pass_id = models.UUIDField(db_index=True)
    step = ExactCharField(max_length=KIND_LENGTH_MAX)
    started_at = UtcDateTimeField(db_default=UtcNow(), db_index=True)
    ended_at = UtcDateTimeField(null=True, blank=True)
    ms = models.BigIntegerField(null=True, blank=True)
    candidates = models.BigIntegerField(db_default=0)
    mails = models.BigIntegerField(db_default=0)
    tasks = models.BigIntegerField(db_default=0)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, db_default=Outcome.RUNNING)
    error = models.TextField(null=True, blank=True)  # noqa: DJ001 - the contract: NULL is clean
    #: ``error`` as codes with parameters (``notes.py``); NULL: clean, or written by plain SQL.
    notes = models.JSONField(null=True, blank=True)
    host = models.CharField(max_length=255, db_default="", blank=True)
    pid = models.BigIntegerField(null=True, blank=True)
    is_full = models.BooleanField(db_default=False)

    objects = RunLogQuerySet.as_manager()

    class Meta:
        db_table = "notify_run_log"
        verbose_name = _("pass")
        verbose_name_plural = _("run history")
        permissions = [("run_pass", "Can run a pass now")]
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=Outcome.values), name="ck_notify_run_log_outcome"),
            models.CheckConstraint(
                condition=Q(outcome=Outcome.RUNNING) | Q(ended_at__isnull=False), name="ck_notify_run_log_ended"
            ),
        ]
        indexes = [
            # Who is running now, and when each step last looked at all: both asked by every pass. SQL Server takes an
            # index with a condition only for a query that has the condition as a literal, as IS NULL is.
            models.Index(fields=["step"], condition=Q(ended_at__isnull=True), name="ix_notify_run_log_running"),
            models.Index(fields=["step", "is_full", "started_at"], name="ix_notify_run_log_full"),
            # The lists of the admin: newest first, by outcome, only with work, only died.
            models.Index(fields=["step", "started_at", "id"], name="ix_notify_run_log_step"),
            models.Index(fields=["step", "outcome", "started_at", "id"], name="ix_notify_run_log_outcome"),
            models.Index(
                fields=["step", "started_at", "id"], condition=Q(candidates__gt=0), name="ix_notify_run_log_work"
            ),
            models.Index(
                fields=["step", "started_at", "id"], condition=Q(ms__isnull=True), name="ix_notify_run_log_died"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pass_id} {self.step} {self.outcome}"


class MailState(models.TextChoices):
    QUEUED = "queued"
    SENDING = "sending"
    SENT = "sent"
    PARTIAL = "partial"
    FAILED = "failed"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    #: Its event was no longer true when its turn came.
    WITHDRAWN = "withdrawn"


class HeldFor(models.TextChoices):
    DIGEST = "digest"
    QUIET_HOURS = "quiet"


class MailQueue(models.Model):
    """
    One mail to send: its subject, its recipients, and the values frozen for its body.

    ``sending`` means that part ``flight`` may be on the wire at this moment. A claimed mail that is not stays
    ``queued``, so that a crash leaves no doubt about it.
    """

    control = models.ForeignKey(Control, on_delete=models.PROTECT, related_name="mails")
    pass_id = models.UUIDField(null=True, blank=True)
    template = models.CharField(max_length=100, db_default="", blank=True)
    subject = models.CharField(max_length=SUBJECT_UNITS_MAX, db_default="", blank=True)
    recipients = models.JSONField(db_default=models.Value([], models.JSONField()), blank=True)
    language = models.CharField(max_length=10, db_default="", blank=True)
    payload = models.JSONField(encoder=DjangoJSONEncoder, db_default=models.Value({}, models.JSONField()), blank=True)
    state = models.CharField(max_length=10, choices=MailState.choices, db_default=MailState.QUEUED)
    problem = models.TextField(db_default="", blank=True)
    #: ``problem`` as codes with parameters (``notes.py``); NULL: none, or written by plain SQL.
    notes = models.JSONField(null=True, blank=True)
    attempts = models.IntegerField(db_default=0)
    created_at = UtcDateTimeField(db_default=UtcNow())
    due_at = UtcDateTimeField(db_default=UtcNow())
    worker = models.CharField(max_length=WORKER_LENGTH_MAX, db_default="", blank=True)
    lease_until = UtcDateTimeField(null=True, blank=True)
    flight = models.IntegerField(null=True, blank=True)
    held_for = models.CharField(max_length=10, choices=HeldFor.choices, db_default="", blank=True)
    digest_of = models.ForeignKey("self", on_delete=models.PROTECT, related_name="digested", null=True, blank=True)
    message_text = models.TextField(db_default="", blank=True)
    message_html = models.TextField(db_default="", blank=True)
    #: The random part of its Message-IDs, generated when it is first sent.
    message_token = models.CharField(max_length=TOKEN_LENGTH, db_default="", blank=True)
    sent_at = UtcDateTimeField(null=True, blank=True)
    operator = models.CharField(max_length=254, db_default="", blank=True)
    operated_at = UtcDateTimeField(null=True, blank=True)
    tenant = ExactCharField(max_length=TENANT_UNITS_MAX, db_default="", blank=True)

    objects = MailQueueQuerySet.as_manager()

    class Meta:
        db_table = "notify_mail_queue"
        verbose_name = _("mail")
        verbose_name_plural = _("mail queue")
        permissions = [("retry_mail", "Can hold, release, retry, confirm and correct mails")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=MailState.values), name="ck_notify_mail_queue_state"),
            models.CheckConstraint(
                condition=~Q(state=MailState.BLOCKED) | ~Q(problem=""), name="ck_notify_mail_queue_blocked"
            ),
            models.CheckConstraint(
                condition=~Q(state=MailState.SENDING) | Q(lease_until__isnull=False, flight__isnull=False),
                name="ck_notify_mail_queue_sending",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "due_at"], name="ix_notify_mail_queue_due"),
            # From a pass to its mails.
            models.Index(fields=["pass_id"], name="ix_notify_mail_queue_pass"),
            # The oldest, for retention.
            models.Index(fields=["created_at"], name="ix_notify_mail_queue_age"),
            # The lists of one tenant: newest first, and by state, the longest due first.
            TenantIndex(fields=["tenant", "id"], name="ix_notify_mail_queue_tenant"),
            TenantIndex(fields=["tenant", "state", "due_at"], name="ix_notify_mail_queue_whose"),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.subject}"


class Wording(models.Model):
    """
    One version of what a kind's mails say in a language, in place of the files; the newest version counts.

    An empty part is the file's; ``is_file`` goes back to the files as a whole. Versions are never changed or deleted:
    each mail names the one that it was made with.
    """

    kind = ExactCharField(max_length=KIND_LENGTH_MAX)
    language = models.CharField(max_length=10)
    subject = models.TextField(db_default="", blank=True)
    text = models.TextField(db_default="", blank=True)
    html = models.TextField(db_default="", blank=True)
    is_file = models.BooleanField(db_default=False)
    author = models.CharField(max_length=254)
    created_at = UtcDateTimeField(db_default=UtcNow())

    objects = models.Manager()

    class Meta:
        db_table = "notify_wording"
        verbose_name = _("wording")
        verbose_name_plural = _("wordings")
        permissions = [("write_wording", "Can write the wording of mails")]
        indexes = [models.Index(fields=["kind", "language", "id"], name="ix_notify_wording_current")]

    def __str__(self) -> str:
        return f"{self.kind} {self.language} {self.pk}"


class TaskQueue(models.Model):
    """One to-do item for a person."""

    control = models.ForeignKey(Control, on_delete=models.PROTECT, related_name="tasks")
    pass_id = models.UUIDField(null=True, blank=True)
    title = models.CharField(max_length=SUBJECT_UNITS_MAX)
    assignee = models.CharField(max_length=254, db_default="", blank=True)
    language = models.CharField(max_length=10, db_default="", blank=True)
    payload = models.JSONField(encoder=DjangoJSONEncoder, db_default=models.Value({}, models.JSONField()), blank=True)
    created_at = UtcDateTimeField(db_default=UtcNow())
    due_at = UtcDateTimeField(null=True, blank=True)
    done_at = UtcDateTimeField(null=True, blank=True)
    done_by = models.CharField(max_length=254, db_default="", blank=True)
    tenant = ExactCharField(max_length=TENANT_UNITS_MAX, db_default="", blank=True)

    objects = TaskQueueQuerySet.as_manager()

    class Meta:
        db_table = "notify_task_queue"
        verbose_name = _("task")
        verbose_name_plural = _("task queue")
        permissions = [("finish_task", "Can assign tasks and mark them as done")]
        constraints = [
            models.CheckConstraint(
                condition=Q(done_at__isnull=True) | ~Q(done_by=""), name="ck_notify_task_queue_done_by"
            )
        ]
        indexes = [
            models.Index(fields=["assignee", "due_at"], name="ix_notify_task_queue_open"),
            models.Index(fields=["pass_id"], name="ix_notify_task_queue_pass"),
            # The lists of the admin: what waits, and what waits for one person.
            models.Index(fields=["id"], condition=Q(done_at__isnull=True), name="ix_notify_task_queue_todo"),
            models.Index(fields=["assignee", "id"], name="ix_notify_task_queue_who"),
            TenantIndex(fields=["tenant", "id"], name="ix_notify_task_queue_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.title}"


class AttemptOutcome(models.TextChoices):
    SENT = "sent"
    #: The server will not have it for this recipient, now or later.
    REFUSED = "refused"
    #: Not now; this recipient is tried again until NOTIFY_ATTEMPTS_MAX.
    DEFERRED = "deferred"
    #: Perhaps sent: the answer to the whole message never came.
    UNCERTAIN = "uncertain"
    #: Not asked: the address is on the suppression list.
    SUPPRESSED = "suppressed"
    #: Something unexpected, before anything was sent.
    ERROR = "error"
    #: After it was sent, by a report: it came back; the recipient calls it spam; it is in the mailbox.
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    DELIVERED = "delivered"


class Attempt(models.Model):
    """
    One delivery attempt for one recipient, with the server's words.

    ``is_overruled``: a person has decided that this outcome does not stand in the way of another attempt.
    """

    mail = models.ForeignKey(MailQueue, on_delete=models.PROTECT, related_name="tries")
    number = models.IntegerField()
    part = models.IntegerField(db_default=0)
    recipient = models.CharField(max_length=ADDRESS_LENGTH_MAX, db_default="", blank=True)
    outcome = models.CharField(max_length=10, choices=AttemptOutcome.choices)
    code = models.IntegerField(null=True, blank=True)
    enhanced = models.CharField(max_length=11, db_default="", blank=True)
    text = models.TextField(db_default="", blank=True)
    #: ``text`` as a code with parameters where it is Kwit that says it, not the server; else NULL.
    notes = models.JSONField(null=True, blank=True)
    at = UtcDateTimeField(db_default=UtcNow(), db_index=True)
    worker = models.CharField(max_length=WORKER_LENGTH_MAX, db_default="", blank=True)
    channel = models.CharField(max_length=CHANNEL_LENGTH_MAX, db_default="", blank=True)
    is_overruled = models.BooleanField(db_default=False)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        db_table = "notify_attempt"
        verbose_name = _("delivery attempt")
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=AttemptOutcome.values), name="ck_notify_attempt_outcome")
        ]

    def __str__(self) -> str:
        return f"{self.mail_id} {self.recipient} {self.outcome}"


class Channel(models.Model):
    """One way out (``smtp``, ``backend``): whether it pauses, until when and why; and when its next mail may go."""

    name = models.CharField(max_length=CHANNEL_LENGTH_MAX, unique=True)
    paused_at = UtcDateTimeField(null=True, blank=True)
    paused_until = UtcDateTimeField(null=True, blank=True)
    reason = models.TextField(db_default="", blank=True)
    failures = models.IntegerField(db_default=0)
    #: With NOTIFY_RATE: the first moment that no worker has taken for a mail yet.
    next_at = UtcDateTimeField(null=True, blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "notify_channel"
        verbose_name = _("channel")
        verbose_name_plural = _("channels")
        permissions = [("resume_channel", "Can end a channel's pause")]
        constraints = [
            models.CheckConstraint(
                condition=Q(paused_until__isnull=True) | Q(paused_at__isnull=False), name="ck_notify_channel_paused"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One delivery that found something to do: worker, lanes, counts, last heartbeat."""

    worker = models.CharField(max_length=WORKER_LENGTH_MAX)
    host = models.CharField(max_length=255, db_default="", blank=True)
    pid = models.BigIntegerField(null=True, blank=True)
    lanes = models.IntegerField(db_default=1)
    started_at = UtcDateTimeField(db_default=UtcNow(), db_index=True)
    seen_at = UtcDateTimeField(db_default=UtcNow())
    ended_at = UtcDateTimeField(null=True, blank=True)
    sent = models.IntegerField(db_default=0)
    partial = models.IntegerField(db_default=0)
    retried = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    uncertain = models.IntegerField(db_default=0)
    blocked = models.IntegerField(db_default=0)
    held = models.IntegerField(db_default=0)
    error = models.TextField(db_default="", blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "notify_delivery"
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")

    def __str__(self) -> str:
        return f"{self.worker} {self.started_at}"


class Epoch(models.Model):
    """The one row by which a restored database is recognised: see ``delivery/epoch.py``."""

    #: The primary key of the one row.
    ONLY = 1

    database = models.UUIDField()
    number = models.BigIntegerField(db_default=0)
    waiting_since = UtcDateTimeField(null=True, blank=True)
    file_number = models.BigIntegerField(null=True, blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "notify_epoch"
        verbose_name = _("delivery epoch")
        verbose_name_plural = _("delivery epoch")
        default_permissions = ()
        constraints = [models.CheckConstraint(condition=Q(id=1), name="ck_notify_epoch_only")]

    def __str__(self) -> str:
        return f"{self.database} {self.number}"


class SuppressionCause(models.TextChoices):
    MANUAL = "manual"
    REFUSED = "refused"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    LINK = "link"


class Suppression(models.Model):
    """One address that gets no mail, in lower case: of one kind, or (kind empty) whatever happens."""

    address = models.CharField(max_length=ADDRESS_LENGTH_MAX)
    kind = ExactCharField(max_length=KIND_LENGTH_MAX, db_default="", blank=True)
    cause = models.CharField(max_length=10, choices=SuppressionCause.choices, db_default=SuppressionCause.MANUAL)
    reason = models.TextField(db_default="", blank=True)
    since = UtcDateTimeField(db_default=UtcNow())

    objects = SuppressionQuerySet.as_manager()

    class Meta:
        db_table = "notify_suppression"
        verbose_name = _("suppressed address")
        verbose_name_plural = _("suppression list")
        constraints = [
            models.UniqueConstraint(fields=["address", "kind"], name="uq_notify_suppression"),
            models.CheckConstraint(condition=Q(address=Lower("address")), name="ck_notify_suppression_lower"),
            models.CheckConstraint(condition=Q(cause__in=SuppressionCause.values), name="ck_notify_suppression_cause"),
        ]

    def __str__(self) -> str:
        return self.address
