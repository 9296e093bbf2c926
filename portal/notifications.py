"""The portal's four kinds of notification, in the order they run."""

from typing import Any

from django.conf import settings
from django.db.models import Exists, F, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce, Concat

from notify.steps import FlaggedStep, Scope, Step, register

from .models import Advice, AdviceState, Comment, LineState, Order, OrderLine


@register
class OrderRegistered(FlaggedStep):
    """A registered order, notified to supplier and buyer; its lines carry the flag ``handled``."""

    kind = "order"
    template = "order"
    breaker = True
    flag_key = "order_id"
    example = {"number": "PO-4711", "note": "Deliver to gate 3", "tenant": "acme"}

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per registered order with lines that wait: key=order."""
        # IN, not EXISTS: each database then starts from the few lines that wait, not from all orders that ever were.
        waiting = OrderLine.objects.filter(handled=False).values("order")
        return Order.objects.filter(pk__in=waiting, registered_at__isnull=False).values(
            "number",
            "note",
            "tenant",
            key=F("pk"),
            event_at=F("registered_at"),
            recipients=Concat(Coalesce("supplier__email", Value("")), Value(";"), Coalesce("buyer__email", Value(""))),
            language=F("supplier__language"),
        )

    def flagged(self) -> QuerySet[Any]:
        """Return the lines, which are handled with their order."""
        return OrderLine.objects.all()


@register
class LineRejected(Step):
    """A line the supplier rejected: a mail and a task for the buyer."""

    kind = "rejected"
    template = "rejected"
    task = "rejected"
    example = {"number": "PO-4711", "item": "Bolt M8", "qty": 100, "reason": "Out of stock"}

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per rejected line: key=line."""
        return OrderLine.objects.filter(state=LineState.REJECTED).values(
            "item",
            "qty",
            "reason",
            "tenant",
            key=F("pk"),
            event_at=F("rejected_at"),
            number=F("order__number"),
            recipients=F("order__buyer__email"),
            language=F("order__buyer__language"),
            assignee=F("order__buyer__name"),
        )


@register
class AdviceAccepted(Step):
    """A delivery advice the warehouse accepted."""

    kind = "advice"
    template = "advice"
    example = {"advice": "DA-17", "order_number": "PO-4711"}

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per accepted advice: key=advice."""
        return Advice.objects.filter(state=AdviceState.ACCEPTED).values(
            key=F("pk"),
            event_at=F("accepted_at"),
            advice=F("number"),
            order_number=F("order__number"),
            tenant=F("order__tenant"),
            recipients=F("order__supplier__email"),
            language=F("order__supplier__language"),
        )


class CommentAdded(Step):
    """The newest comment of a line: several between two passes give one mail, which shows the newest."""

    kind = "comment"
    template = "comment"
    keeps_quiet_hours = True
    example = {"author": "Aiko", "body": "When will it ship?", "item": "Bolt M8", "number": "PO-4711", "timezone": ""}

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per line with comments: key=line, key2=newest comment."""
        newer = Comment.objects.filter(line=OuterRef("line"), pk__gt=OuterRef("pk"))
        return Comment.objects.filter(~Exists(newer)).values(
            "author",
            "body",
            key=F("line_id"),
            key2=F("pk"),
            event_at=F("created_at"),
            item=F("line__item"),
            number=F("line__order__number"),
            tenant=F("line__tenant"),
            timezone=F("recipient__timezone"),
            recipients=F("recipient__email"),
            language=F("recipient__language"),
        )


class EachComment(CommentAdded):
    """Every comment of a line: several between two passes give one mail, which shows all of them."""

    template = "comments"
    coalesce = True

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        """Return one row per comment: key=line, key2=comment."""
        return Comment.objects.values(
            "author",
            "body",
            key=F("line_id"),
            key2=F("pk"),
            event_at=F("created_at"),
            item=F("line__item"),
            number=F("line__order__number"),
            tenant=F("line__tenant"),
            timezone=F("recipient__timezone"),
            recipients=F("recipient__email"),
            language=F("recipient__language"),
        )


# One of the two: both are of the kind "comment", so that a site may change its mind (docs/own-step.md says how).
register(EachComment if settings.PORTAL_EACH_COMMENT else CommentAdded)
