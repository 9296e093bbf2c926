"""
The control table, the run log and the two queues.

Plain SQL may read and insert: every default is in the database.
"""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .fields import ExactCharField, UtcNow
from .querysets import MailQueueQuerySet, RunLogQuerySet, TaskQueueQuerySet

KIND_LENGTH_MAX = 10
#: UTF-16 code units, because that is what NVARCHAR(n) counts; 255 fits every mail client's list.
SUBJECT_UNITS_MAX = 255
#: Characters of an error or a warning that are kept: NVARCHAR(4000) is the longest that SQL Server keeps in the row.
ERROR_CHARS_MAX = 4000


class Control(models.Model):
    """One event that has had its message prepared. Never pruned: it is the only place asked "already notified?"."""

    kind = ExactCharField(max_length=KIND_LENGTH_MAX)
    key = models.BigIntegerField()
    key2 = models.BigIntegerField(db_default=0)
    language = models.CharField(max_length=10, db_default="", blank=True)
    recipients = models.TextField(db_default="", blank=True)
    created_at = models.DateTimeField(db_default=UtcNow())

    objects = models.Manager()

    class Meta:
        db_table = "notify_control"
        verbose_name = _("control row")
        verbose_name_plural = _("control table")
        constraints = [models.UniqueConstraint(fields=["kind", "key", "key2"], name="uq_notify_control_event")]

    def __str__(self) -> str:
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
    started_at = models.DateTimeField(db_default=UtcNow(), db_index=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ms = models.BigIntegerField(null=True, blank=True)
    candidates = models.BigIntegerField(db_default=0)
    mails = models.BigIntegerField(db_default=0)
    tasks = models.BigIntegerField(db_default=0)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, db_default=Outcome.RUNNING)
    error = models.TextField(null=True, blank=True)  # noqa: DJ001 - the contract: NULL is clean
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


class MailQueue(models.Model):
    """One mail to send: its subject, its recipients, and the values frozen for its body."""

    control = models.ForeignKey(Control, on_delete=models.PROTECT, related_name="mails")
    pass_id = models.UUIDField(null=True, blank=True)
    template = models.CharField(max_length=100, db_default="", blank=True)
    subject = models.CharField(max_length=SUBJECT_UNITS_MAX, db_default="", blank=True)
    recipients = models.JSONField(db_default=models.Value([], models.JSONField()), blank=True)
    language = models.CharField(max_length=10, db_default="", blank=True)
    payload = models.JSONField(encoder=DjangoJSONEncoder, db_default=models.Value({}, models.JSONField()), blank=True)
    state = models.CharField(max_length=10, choices=MailState.choices, db_default=MailState.QUEUED)
    problem = models.TextField(db_default="", blank=True)
    attempts = models.IntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=UtcNow())
    due_at = models.DateTimeField(db_default=UtcNow())

    objects = MailQueueQuerySet.as_manager()

    class Meta:
        db_table = "notify_mail_queue"
        verbose_name = _("mail")
        verbose_name_plural = _("mail queue")
        permissions = [("retry_mail", "Can hold, release and correct mails")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=MailState.values), name="ck_notify_mail_queue_state"),
            models.CheckConstraint(
                condition=~Q(state=MailState.BLOCKED) | ~Q(problem=""), name="ck_notify_mail_queue_blocked"
            ),
        ]
        indexes = [
            models.Index(fields=["state", "due_at"], name="ix_notify_mail_queue_due"),
            # From a pass to its mails.
            models.Index(fields=["pass_id"], name="ix_notify_mail_queue_pass"),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.subject}"


class TaskQueue(models.Model):
    """One to-do item for a person."""

    control = models.ForeignKey(Control, on_delete=models.PROTECT, related_name="tasks")
    pass_id = models.UUIDField(null=True, blank=True)
    title = models.CharField(max_length=SUBJECT_UNITS_MAX)
    assignee = models.CharField(max_length=254, db_default="", blank=True)
    language = models.CharField(max_length=10, db_default="", blank=True)
    payload = models.JSONField(encoder=DjangoJSONEncoder, db_default=models.Value({}, models.JSONField()), blank=True)
    created_at = models.DateTimeField(db_default=UtcNow())
    due_at = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)
    done_by = models.CharField(max_length=254, db_default="", blank=True)

    objects = TaskQueueQuerySet.as_manager()

    class Meta:
        db_table = "notify_task_queue"
        verbose_name = _("task")
        verbose_name_plural = _("task queue")
        permissions = [("finish_task", "Can mark tasks as done")]
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
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.title}"
