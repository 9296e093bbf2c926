"""What people type and send: a plan's content with its limits, change ids, reasons; and how problems are shown."""

import secrets
from collections.abc import Sequence
from datetime import date
from typing import Any

from django import forms
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.components import NONE, Cell, Row, Table
from kwit.people.tenants import User, of_model, sees, tenants_of

from ..change_types import get_kind
from ..conf import load_settings
from ..errors import Flaw, InvalidPlan
from ..models import Change, StoredPlan
from ..plans.limits import PLAN_BYTES_MAX
from ..plans.model import (
    CHANGE_ID_CHARS_MAX,
    REASON_CHARS_MAX,
    Plan,
    checked_key,
    checked_note,
    read_plan,
    said_by,
)
from .plan_badges import in_words, kinds

#: Bytes of a request whose rest is read and thrown away, so that the browser gets to see the answer; of a longer one
#: nothing more is read.
DRAINED_BYTES_MAX = 4 * PLAN_BYTES_MAX
#: Problems on one page; a file of ten thousand rows may have one in each cell.
PROBLEMS_SHOWN = 1_000
#: Tenants named beside the field.
TENANTS_NAMED = 10


class Quota(FileUploadHandler):
    """Ends an upload as soon as it is longer than a plan may be; nothing of it is kept."""

    taken = 0
    is_exceeded = False
    is_drained = True

    def handle_raw_input(self, *raw: Any, **more: Any) -> None:
        """Note how long the request is going to be; the third argument says it."""
        self.is_drained = raw[2] <= DRAINED_BYTES_MAX

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Pass the data on, or stop."""
        self.taken += len(raw_data)
        if self.taken > PLAN_BYTES_MAX:
            self.is_exceeded = True
            raise StopUpload(connection_reset=not self.is_drained)
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """Leave the file to the handlers behind."""


class ContentForm(forms.Form):
    """The targets, as a file or pasted."""

    pasted = forms.CharField(
        label=gettext_lazy("Or paste it"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text=gettext_lazy("JSON, or CSV with the columns of the kind: for most, id, revision and qty."),
    )
    # What was typed before it is kept when the file is too long to be read.
    file = forms.FileField(label=gettext_lazy("File"), required=False, allow_empty_file=True)

    accept_hidden = forms.BooleanField(
        label=gettext_lazy("Take hidden rows, columns and sheets"),
        required=False,
        help_text=gettext_lazy("The reason says how many."),
    )
    accept_formulas = forms.BooleanField(
        label=gettext_lazy("Take the last results of formulas"),
        required=False,
        help_text=gettext_lazy("The reason says how many."),
    )

    def __init__(self, *args: Any, quota: Quota | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.quota = quota
        text = _(
            ".json, .csv or .xlsx, up to %(mb)d MiB and %(count)d targets. After a problem it has to be chosen again."
        )
        limits = {"mb": PLAN_BYTES_MAX // 2**20, "count": load_settings().max_targets}
        self.fields["file"].help_text = text % limits

    def clean(self) -> dict[str, Any]:
        """Ask for one of both."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        pasted, file = cleaned.get("pasted", ""), cleaned.get("file")
        is_exceeded = self.quota is not None and self.quota.is_exceeded
        # Some middleware of the site may have read the request before the limit stood.
        if is_exceeded or (file is not None and (file.size or 0) > PLAN_BYTES_MAX):
            self.add_error("file", _("The file has more than %d MiB.") % (PLAN_BYTES_MAX // 2**20))
        elif "pasted" in cleaned and bool(pasted.strip()) == (file is not None):
            self.add_error("file", _("Choose a file or paste the content, one of both."))
        return cleaned

    def read(self, *, kind: str, change_id: str | None, tenant: str | None) -> Plan:
        """Read what was sent as a plan of a kind. Raises: InvalidPlan, UnknownKind."""
        file: Any = self.cleaned_data.get("file")
        if file is not None:
            data, name = file.read(), file.name or "?"
        else:
            text = self.cleaned_data["pasted"]
            data, name = (
                text.encode(errors="replace"),
                "pasted.json" if text.lstrip().startswith(("{", "[")) else "pasted.csv",
            )
        return read_plan(
            data,
            name=name,
            change_id=change_id,
            tenant=tenant,
            targets_max=load_settings().max_targets,
            accept_hidden=self.cleaned_data.get("accept_hidden", False),
            accept_formulas=self.cleaned_data.get("accept_formulas", False),
            shape=get_kind(kind),
        )


class PlanForm(ContentForm):
    """A whole plan."""

    kind = forms.ChoiceField(label=gettext_lazy("Kind of change"), choices=kinds)
    change_id = forms.CharField(
        label=gettext_lazy("Change id"),
        required=False,
        strip=False,
        help_text=gettext_lazy("Needed for CSV and XLSX; JSON brings it along."),
    )
    tenant = forms.CharField(label=gettext_lazy("Tenant"), required=False, strip=False)
    reason = forms.CharField(
        label=gettext_lazy("Reason"), required=False, max_length=REASON_CHARS_MAX, widget=forms.Textarea({"rows": 2})
    )
    field_order = ("kind", "change_id", "tenant", "reason", "pasted", "file", "accept_hidden", "accept_formulas")

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        super().__init__(*args, **options)
        self.user = user
        self.fields["tenant"].help_text = tenants_text(user)

    def plan(self) -> Plan:
        """Return the plan that was sent, of a tenant of the user's. Raises: InvalidPlan with every flaw."""
        change_id, tenant = (self.cleaned_data[name] or None for name in ("change_id", "tenant"))
        flaws: list[Flaw] = []
        try:
            plan = self.read(kind=self.cleaned_data["kind"], change_id=change_id, tenant=tenant)
        except InvalidPlan as error:
            flaws, asked = list(error.flaws), tenant
        else:
            asked = plan.tenant
        if asked is not None and not sees(self.user, asked):
            # The same for one that there is and for one that there is not.
            flaws.insert(0, Flaw("tenant", _("is none of your tenants"), column="tenant", given=repr(asked)))
        if flaws:
            raise InvalidPlan(flaws)
        return plan


class DraftForm(forms.Form):
    """What a draft from rows needs beside them."""

    change_id = forms.CharField(label=gettext_lazy("Change id"), max_length=CHANGE_ID_CHARS_MAX, strip=False)
    reason = forms.CharField(
        label=gettext_lazy("Reason"), required=False, max_length=REASON_CHARS_MAX, widget=forms.Textarea({"rows": 2})
    )

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        super().__init__(*args, **options)
        self.user = user

    def clean_change_id(self) -> str:
        """Refuse what cannot be a key, and what is taken."""
        text: str = self.cleaned_data["change_id"]
        try:
            checked_key(text)
        except ValueError as error:
            raise forms.ValidationError(_("It %s.") % in_words(said_by(error))) from error
        if is_taken(text, self.user):
            raise forms.ValidationError(_("It is used already; choose another."))
        return text

    def clean_reason(self) -> str:
        """Refuse what no database can store."""
        try:
            return checked_note(self.cleaned_data["reason"])
        except ValueError as error:
            raise forms.ValidationError(_("It %s.") % in_words(said_by(error))) from error


class ReasonForm(forms.Form):
    """Why a plan is closed."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"), required=False, max_length=REASON_CHARS_MAX, widget=forms.Textarea({"rows": 2})
    )

    def __init__(self, *args: Any, is_required: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["reason"].required = is_required

    def clean_reason(self) -> str:
        """Refuse what no database can store."""
        try:
            return checked_note(self.cleaned_data["reason"])
        except ValueError as error:
            raise forms.ValidationError(_("It %s.") % in_words(said_by(error))) from error


def is_taken(change_id: str, user: User) -> bool:
    """Whether a receipt, or a plan that the user may see, has this change id."""
    if Change.objects.filter(pk=change_id).exists():
        return True
    return of_model(user, StoredPlan).filter(change_id=change_id).exists()


def suggested_id(kind: str, *, today: date | None = None, token: str | None = None) -> str:
    """Return a change id that nobody has used: the kind, the day, and a few digits of chance."""
    day = today or timezone.localdate()
    return f"{kind[:20].upper()}-{day:%Y%m%d}-{(token or secrets.token_hex(4)).upper()}"


def tenants_text(user: User) -> str:
    """Say which tenants may be typed."""
    tenants = tenants_of(user)
    if tenants is None:
        return _("Needed for CSV and XLSX; JSON brings it along.")
    named = sorted(tenants)[:TENANTS_NAMED]
    more = "…" if len(tenants) > TENANTS_NAMED else ""
    return _("Needed for CSV and XLSX; JSON brings it along. Yours: %s") % (", ".join(named) + more or NONE)


def the_only_tenant(user: User) -> str:
    """Return the tenant of a user who has one."""
    tenants = tenants_of(user)
    return next(iter(tenants)) if tenants is not None and len(tenants) == 1 else ""


def flaws_table(flaws: Sequence[Flaw]) -> Table:
    """Return a plan's problems, each at its row."""
    head = [_("row"), _("column"), _("value as given"), _("problem")]
    rows = [
        Row(
            cells=[
                Cell(text=NONE if flaw.row is None else flaw.row, is_number=True),
                Cell(text=flaw.column or (NONE if flaw.row is not None else in_words(flaw.where))),
                Cell(text=flaw.given or NONE, is_code=bool(flaw.given)),
                Cell(text=in_words(flaw.problem)),
            ]
        )
        for flaw in sorted(flaws, key=lambda flaw: flaw.row or 0)[:PROBLEMS_SHOWN]
    ]
    return Table(head=head, rows=rows, numbers=frozenset({0}))


def flaws_title(flaws: Sequence[Flaw]) -> str:
    """Say how many problems there are, and how many are shown."""
    text = ngettext("%d problem; nothing was stored", "%d problems; nothing was stored", len(flaws)) % len(flaws)
    return text if len(flaws) <= PROBLEMS_SHOWN else text + " " + _("(the first %d are shown)") % PROBLEMS_SHOWN


def quota_of(request: HttpRequest) -> Quota | None:
    """Set the limit of an upload; to be called before anything of the request's body is read."""
    if request.method != "POST":
        return None
    quota = Quota(request)
    request.upload_handlers.insert(0, quota)
    return quota
