"""The log of actions, memberships of tenants, and API tokens."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .db.fields import UtcDateTimeField, UtcNow

NAME_CHARS_MAX = 254
SCOPE_CHARS_MAX = 1000
NOTE_CHARS_MAX = 1000
TENANT_CHARS_MAX = 64
TOKEN_NAME_CHARS_MAX = 100


class ActionOutcome(models.TextChoices):
    OPEN = "open", _("open")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")


class Action(models.Model):
    """
    One action that a person took on these pages.

    Inserted before the work and closed after it, so that one whose process died stays ``open``. The actor is a name,
    not a key: the row outlives the user, and users may be in another database.
    """

    at = UtcDateTimeField(_("time"), db_default=UtcNow())
    actor = models.CharField(_("user"), max_length=NAME_CHARS_MAX)
    name = models.CharField(_("action"), max_length=100)
    subject = models.CharField(_("object type"), max_length=100)
    scope = models.CharField(_("rows"), max_length=SCOPE_CHARS_MAX, db_default="", blank=True)
    asked = models.BigIntegerField(_("requested"), db_default=0)
    done = models.BigIntegerField(_("done"), null=True, blank=True)
    outcome = models.CharField(
        _("outcome"), max_length=10, choices=ActionOutcome.choices, db_default=ActionOutcome.OPEN
    )
    note = models.CharField(_("note"), max_length=NOTE_CHARS_MAX, db_default="", blank=True)
    #: The tenant of the rows; empty for none or several.
    tenant = models.CharField(_("tenant"), max_length=TENANT_CHARS_MAX, db_default="", blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "kwit_action"
        verbose_name = _("action")
        verbose_name_plural = _("actions")
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=ActionOutcome.values), name="ck_kwit_action_outcome"),
            models.CheckConstraint(condition=~Q(actor=""), name="ck_kwit_action_actor"),
        ]
        indexes = [
            models.Index(fields=["actor", "id"], name="ix_kwit_action_actor"),
            models.Index(fields=["tenant", "id"], name="ix_kwit_action_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.subject} {self.scope}".rstrip()


class Membership(models.Model):
    """One user's membership of one tenant, whose rows pages, exports and the API show to the user."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("user")
    )
    tenant = models.CharField(_("tenant"), max_length=TENANT_CHARS_MAX)

    objects = models.Manager()

    class Meta:
        db_table = "kwit_membership"
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        permissions = [("see_all_tenants", "Can see the rows of every tenant")]
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="uq_kwit_membership"),
            models.CheckConstraint(condition=~Q(tenant=""), name="ck_kwit_membership_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.user} / {self.tenant}"


class Token(models.Model):
    """
    One secret with which a program reads the API as its user.

    Only its SHA-256 is stored: it has 256 random bits, so that neither a salt nor a slow hash would add anything.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="kwit_tokens", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=TOKEN_NAME_CHARS_MAX)
    prefix = models.CharField(_("prefix"), max_length=20)
    digest = models.CharField(max_length=64, unique=True)
    #: The SHA-256 of the user's password hash when the token was made: with another password the token ends.
    password_digest = models.CharField(max_length=64, db_default="")
    created_at = UtcDateTimeField(_("created"), db_default=UtcNow())
    last_used_at = UtcDateTimeField(_("last used"), null=True, blank=True)
    expires_at = UtcDateTimeField(_("expires"), null=True, blank=True)
    revoked_at = UtcDateTimeField(_("revoked"), null=True, blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "kwit_token"
        verbose_name = _("token")
        verbose_name_plural = _("tokens")
        permissions = [("view_metrics", "Can read /metrics")]
        constraints = [
            # A form that is sent twice makes one token.
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(revoked_at__isnull=True), name="uq_kwit_token_name"
            ),
            models.CheckConstraint(condition=~Q(name="") & ~Q(digest=""), name="ck_kwit_token_named"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def ends_at(self, *, days_max: int) -> datetime | None:
        """Return when the token ends by its own date and by the site's limit, whichever comes first; None: never."""
        limits = [self.expires_at, self.created_at + timedelta(days=days_max) if days_max else None]
        return min((one for one in limits if one is not None), default=None)
