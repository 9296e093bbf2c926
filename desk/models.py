"""Who did what, when, on what."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

NAME_CHARS_MAX = 254
SCOPE_CHARS_MAX = 1000
NOTE_CHARS_MAX = 1000


class ActionOutcome(models.TextChoices):
    OPEN = "open", _("open")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


class Action(models.Model):
    """
    One thing a person asked for on these pages.

    Written before the work begins and closed after it, so that one whose process died stays ``open``. The actor is a
    name, not a key: the row outlives the user, and the user table may sit in another database.
    """

    at = models.DateTimeField(_("when"), db_default=Now())
    actor = models.CharField(_("who"), max_length=NAME_CHARS_MAX)
    name = models.CharField(_("what"), max_length=100)
    subject = models.CharField(_("on what"), max_length=100)
    scope = models.CharField(_("which"), max_length=SCOPE_CHARS_MAX, db_default="", blank=True)
    asked = models.BigIntegerField(_("asked for"), db_default=0)
    done = models.BigIntegerField(_("done"), null=True, blank=True)
    outcome = models.CharField(
        _("outcome"), max_length=10, choices=ActionOutcome.choices, db_default=ActionOutcome.OPEN
    )
    note = models.CharField(_("note"), max_length=NOTE_CHARS_MAX, db_default="", blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "desk_action"
        verbose_name = _("action")
        verbose_name_plural = _("actions")
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=ActionOutcome.values), name="ck_desk_action_outcome"),
            models.CheckConstraint(condition=~Q(actor=""), name="ck_desk_action_actor"),
        ]
        indexes = [models.Index(fields=["actor", "id"], name="ix_desk_action_actor")]

    def __str__(self) -> str:
        return f"{self.name} {self.subject} {self.scope}".rstrip()
