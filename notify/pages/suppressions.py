"""The suppression list: addresses that get no mail, since when and why; put on it and taken off by hand."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.actions import Confirmation, ListAction, record_action
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Cell, Detail, Fact, Link, Row, Section
from kwit.admin.filters import Filter

from ..delivery.suppressions import normal, suppress
from ..errors import WrongAddress
from ..models import ADDRESS_LENGTH_MAX, Suppression, SuppressionCause
from .badges import line_of

#: How an address came onto the list.
CAUSES: dict[str, Any] = {
    SuppressionCause.MANUAL: gettext_lazy("by hand"),
    SuppressionCause.REFUSED: gettext_lazy("its mail server says that there is no such mailbox"),
    SuppressionCause.BOUNCED: gettext_lazy("a mail came back"),
    SuppressionCause.COMPLAINED: gettext_lazy("the recipient reported a mail as unwanted"),
    SuppressionCause.LINK: gettext_lazy("the recipient unsubscribed by link"),
}
ADD_PERMISSION = "notify.add_suppression"


class SuppressForm(forms.Form):
    """Whom, and why."""

    address = forms.CharField(label=gettext_lazy("Address"), max_length=ADDRESS_LENGTH_MAX)
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=400)

    def clean_address(self) -> str:
        """Return the address as the list keeps it."""
        try:
            return normal(self.cleaned_data["address"])
        except WrongAddress as error:
            raise forms.ValidationError(_("Not one address: %s") % self.cleaned_data["address"]) from error


def take_off(pks: Sequence[int], *, actor: str, using: str) -> int:
    """Take addresses off the list."""
    rows = Suppression.objects.using(using).filter(pk__in=pks)
    with transaction.atomic(using=using):
        return rows.delete()[0]


@admin.register(Suppression)
class SuppressionAdmin(ReadOnlyAdmin):
    """Which addresses get no mail, and why."""

    intro = gettext_lazy("These addresses get no mail of the kind named, or of any. The newest stands first.")
    empty_text = gettext_lazy("No such address is on the list.")
    label_field = "address"
    head = (gettext_lazy("address"), gettext_lazy("kind"), gettext_lazy("since"), gettext_lazy("why"))
    filters = (
        Filter("address", gettext_lazy("Address"), lambda rows, value: rows.filter(address=value.strip().lower())),
    )
    list_actions = (
        ListAction(
            name="unsuppress",
            label=gettext_lazy("Take off the list"),
            explains=gettext_lazy(
                "New mails go to these addresses again. A mail that was blocked because of one stays blocked until "
                "somebody releases it."
            ),
            permission="notify.delete_suppression",
            verb=take_off,
            eligible=lambda rows: rows,
        ),
    )

    def get_urls(self) -> list[URLPattern]:
        """Add the page that puts an address on the list; its action is recorded also when it fails."""
        view = transaction.non_atomic_requests(self.admin_site.admin_view(self.suppress_view))
        return [path("suppress/", view, name=self.url_name("suppress")), *super().get_urls()]

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the way to put an address on the list."""
        is_allowed = request.user.has_perm(ADD_PERMISSION)
        return [Link(_("Put an address on the list"), self.url("suppress"))] if is_allowed else []

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per address."""
        return [Row(cells=self.cells(row), key=str(row.pk), name=row.address) for row in found]

    def cells(self, row: Suppression) -> list[Cell]:
        """Return an address's cells."""
        return [
            Cell(text=row.address, url=self.url("change", row.pk)),
            Cell(text=row.kind or _("all")),
            Cell(at=row.since),
            Cell(text=line_of(row.reason) or CAUSES[row.cause]),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return an address in full."""
        facts = [
            Fact(name=_("kind"), cell=Cell(text=row.kind or _("all"))),
            Fact(name=_("since"), cell=Cell(at=row.since)),
            Fact(name=_("how"), cell=Cell(text=CAUSES[row.cause])),
        ]
        sections = [Section(facts=facts)]
        if row.reason:
            sections.append(Section(title=_("why"), text=row.reason))
        return Detail(title=row.address, sections=sections)

    def suppress_view(self, request: HttpRequest) -> HttpResponse:
        """Ask which address and why, then put it on the list."""
        if not self.has_view_permission(request) or not request.user.has_perm(ADD_PERMISSION):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        form = SuppressForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self.put_on(request, **form.cleaned_data)
        asked = Confirmation(
            title=_("Put an address on the list"),
            question=_("Which address gets no more mail, and why?"),
            explains=_("Nothing is sent to it any more, of no kind. What waits for nobody else is blocked."),
            button=_("Put an address on the list"),
            form=form,
            back=self.url("changelist"),
        )
        return TemplateResponse(request, "kwit/confirm.html", self.context(request, title=asked.title, asked=asked))

    def put_on(self, request: HttpRequest, *, address: str, reason: str) -> HttpResponse:
        """Put an address on the list, record who did, and say so."""
        actor, subject = request.user.get_username(), self.opts.label_lower
        with record_action(actor=actor, name="suppress", subject=subject, scope=address, asked=1) as doing:
            doing.note = f"reason={reason}"
            doing.done = int(suppress(address, reason=reason, using=router.db_for_write(Suppression)))
        if doing.done:
            messages.success(request, _("No more mail goes to %s.") % address)
        else:
            messages.warning(request, _("It was on the list already: %s") % address)
        return redirect(self.url("changelist"))
