"""The sample business: orders with lines, delivery advices, comments, and the people who are notified of them."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kwit.db.fields import ExactCharField, UtcDateTimeField, UtcNow


class Contact(models.Model):
    """One person who may be notified: a login name, a mail address, a language and a time zone."""

    name = ExactCharField(max_length=100, unique=True)
    # Not an EmailField: what stands here came from elsewhere, and Kwit has to cope with all of it.
    email = models.CharField(max_length=254, db_default="", blank=True)
    language = models.CharField(max_length=10, db_default="en")
    timezone = models.CharField(max_length=64, db_default="", blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_contact"

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """One purchase order; it exists for the supplier once it is registered."""

    number = models.CharField(max_length=40)
    tenant = ExactCharField(max_length=64)
    buyer = models.ForeignKey(Contact, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    supplier = models.ForeignKey(Contact, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    note = models.TextField(db_default="", blank=True)
    registered_at = UtcDateTimeField(null=True, blank=True, db_index=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_order"
        verbose_name = _("order")
        indexes = [models.Index(fields=["number"], name="ix_portal_order_number")]

    def __str__(self) -> str:
        return self.number


class LineState(models.TextChoices):
    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class OrderLine(models.Model):
    """One item of an order; ``revision`` grows by one with every change of the row."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    tenant = ExactCharField(max_length=64)
    item = models.CharField(max_length=100, db_default="", blank=True)
    qty = models.IntegerField(null=True, blank=True)
    revision = models.IntegerField(db_default=0)
    state = models.CharField(max_length=10, choices=LineState.choices, db_default=LineState.PENDING)
    handled = models.BooleanField(db_default=False)
    rejected_at = UtcDateTimeField(null=True, blank=True, db_index=True)
    reason = models.TextField(db_default="", blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_orderline"
        verbose_name = _("order line")
        verbose_name_plural = _("order lines")
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=LineState.values), name="ck_portal_line_state"),
            models.CheckConstraint(
                condition=~models.Q(state=LineState.REJECTED) | models.Q(rejected_at__isnull=False),
                name="ck_portal_line_rejected_at",
            ),
        ]
        indexes = [
            # The few lines that wait to be handled, however many have been. Not a partial index: SQL Server would not
            # take it, because the query has the flag as a parameter.
            models.Index(fields=["handled", "order"], name="ix_portal_line_unhandled"),
            # The list of lines, newest first, of one tenant or in one state.
            models.Index(fields=["tenant", "id"], name="ix_portal_line_tenant"),
            models.Index(fields=["state", "id"], name="ix_portal_line_state"),
        ]

    def __str__(self) -> str:
        return f"{self.order_id}/{self.pk} {self.item}"


class Price(models.Model):
    """What one article costs one tenant. Nothing raises a revision here: a change compares the price itself."""

    tenant = ExactCharField(max_length=64)
    article = models.CharField(max_length=40)
    price = models.DecimalField(max_digits=12, decimal_places=2)
    currency = models.CharField(max_length=3, db_default="EUR")
    valid_from = models.DateField(null=True, blank=True)
    is_active = models.BooleanField(db_default=True)
    changed_at = UtcDateTimeField(null=True, blank=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_price"
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        indexes = [models.Index(fields=["tenant", "article"], name="ix_portal_price_article")]

    def __str__(self) -> str:
        return self.article


class AdviceState(models.TextChoices):
    SENT = "sent"
    ACCEPTED = "accepted"


class Advice(models.Model):
    """One delivery advice of a supplier, accepted by the warehouse or not yet."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="advices")
    number = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=AdviceState.choices, db_default=AdviceState.SENT)
    accepted_at = UtcDateTimeField(null=True, blank=True, db_index=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_advice"
        verbose_name = _("delivery advice")
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=AdviceState.values), name="ck_portal_advice_state"),
            models.CheckConstraint(
                condition=~models.Q(state=AdviceState.ACCEPTED) | models.Q(accepted_at__isnull=False),
                name="ck_portal_advice_accepted_at",
            ),
        ]

    def __str__(self) -> str:
        return self.number


class Comment(models.Model):
    """One remark on an order line, addressed to one contact by login name."""

    line = models.ForeignKey(OrderLine, on_delete=models.CASCADE, related_name="comments", db_index=False)
    author = models.CharField(max_length=100)
    recipient = models.ForeignKey(
        Contact,
        on_delete=models.PROTECT,
        to_field="name",
        db_column="recipient",
        related_name="+",
        null=True,
        blank=True,
        # Django would add a second index for LIKE, which nobody asks for.
        db_index=False,
    )
    body = models.TextField(db_default="", blank=True)
    created_at = UtcDateTimeField(db_default=UtcNow(), db_index=True)

    objects = models.Manager()

    class Meta:
        db_table = "portal_comment"
        verbose_name = _("comment")
        indexes = [
            # "Is there a newer comment on this line?" is a seek.
            models.Index(fields=["line", "id"], name="ix_portal_comment_line"),
            models.Index(fields=["recipient"], name="ix_portal_comment_recipient"),
        ]

    def __str__(self) -> str:
        return f"{self.line_id}/{self.pk} {self.author}"
