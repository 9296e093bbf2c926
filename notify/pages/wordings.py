"""The wording of mails: what people wrote in place of the files, per kind and language, with its history."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Cell, Detail, Fact, Link, Row, Section
from kwit.admin.filters import ChoiceFilter, equals
from kwit.people.tenants import of_model

from ..errors import ChannelDown, UnknownStep, UnusableWording
from ..messages.sandbox import FILTERS, SOURCE_CHARS_MAX, TAGS
from ..messages.wordings import Draft, known_names
from ..models import AttemptOutcome, MailQueue, Wording
from ..operations.wordings import (
    draft_of,
    get_step,
    languages,
    restore_files,
    samples_of,
    save_wording,
    send_test,
    show_draft,
    worded_steps,
)
from ..steps import Step
from .badges import kinds, line_of

WRITE_PERMISSION = "notify.write_wording"


class WordingForm(forms.Form):
    """What the mails of a kind say in a language; an empty part is the file's."""

    subject = forms.CharField(label=gettext_lazy("Subject"), required=False, max_length=1000)
    text = forms.CharField(
        label=gettext_lazy("Text"), required=False, max_length=SOURCE_CHARS_MAX, widget=forms.Textarea
    )
    html = forms.CharField(
        label=gettext_lazy("HTML"), required=False, max_length=SOURCE_CHARS_MAX, widget=forms.Textarea
    )

    def draft(self) -> Draft:
        """Return what was written."""
        return Draft(**{name: self.cleaned_data[name].replace("\r\n", "\n") for name in ("subject", "text", "html")})


@admin.register(Wording)
class WordingAdmin(ReadOnlyAdmin):
    """What people wrote in place of the files."""

    intro = gettext_lazy(
        "What people wrote in place of the files, the newest version first. The newest of a kind and language counts "
        "for mails prepared from then on."
    )
    empty_text = gettext_lazy("All mails say what their files say.")
    head = (
        gettext_lazy("version"),
        gettext_lazy("kind"),
        gettext_lazy("language"),
        gettext_lazy("subject"),
        gettext_lazy("who"),
        gettext_lazy("when"),
    )
    filters = (
        ChoiceFilter("kind", gettext_lazy("Kind"), equals("kind"), choices=kinds),
        ChoiceFilter("language", gettext_lazy("Language"), equals("language"), choices=languages),
    )

    def get_urls(self) -> list[URLPattern]:
        """Add the page on which a wording is written."""
        view = self.admin_site.admin_view(self.write_view)
        return [path("write/<str:kind>/<str:language>/", view, name=self.url_name("write")), *super().get_urls()]

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the ways to write the wording of each kind and language."""
        if not request.user.has_perm(WRITE_PERMISSION):
            return []
        return [
            Link(
                _("Write: %(kind)s, %(language)s") % {"kind": step.kind, "language": code},
                self.url("write", step.kind, code),
            )
            for step in worded_steps()
            for code, _name in languages()
        ]

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per version."""
        return [Row(cells=self.cells(row), key=str(row.pk), name=str(row)) for row in found]

    def cells(self, row: Wording) -> list[Cell]:
        """Return a version's cells."""
        return [
            Cell(text=row.pk, url=self.url("change", row.pk)),
            Cell(text=row.kind),
            Cell(text=row.language),
            Cell(text=_("back to the file's version") if row.is_file else line_of(row.subject)),
            Cell(text=row.author),
            Cell(at=row.created_at),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a version in full, with the way to write the next one from it."""
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head, self.cells(row), strict=True)]
        parts = ((_("Subject"), row.subject), (_("Text"), row.text), (_("HTML"), row.html))
        sections = [Section(facts=facts), *(Section(title=title, text=text) for title, text in parts if text)]
        links = []
        if request.user.has_perm(WRITE_PERMISSION) and any(step.kind == row.kind for step in worded_steps()):
            links = [
                Link(
                    _("Write the next version from this one"), self.url("write", row.kind, row.language, version=row.pk)
                )
            ]
        return Detail(title=str(row), sections=sections, links=links)

    def write_view(self, request: HttpRequest, kind: str, language: str) -> HttpResponse:
        """Show, try, save or take back the wording of a kind in a language."""
        if not self.has_view_permission(request) or not request.user.has_perm(WRITE_PERMISSION):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        try:
            step = get_step(kind)
        except UnknownStep as error:
            raise Http404(str(error)) from error
        if language not in dict(languages()):
            raise Http404(language)
        if request.method != "POST":
            form = WordingForm(initial=vars(self.begin_with(request, step, language)))
            return self.page_of(request, step, language, form, {})
        if request.POST.get("do") == "file":
            restore_files(step, language, author=request.user.get_username())
            messages.success(request, _("The mails prepared from now on say what the files say."))
            return redirect(self.url("write", kind, language))
        form = WordingForm(request.POST)
        if not form.is_valid():
            return self.page_of(request, step, language, form, {})
        return self.answer(request, step, language, form)

    def begin_with(self, request: HttpRequest, step: Step, language: str) -> Draft:
        """Return what the form shows first: an older version when one is asked for, else what counts now."""
        version = request.GET.get("version", "")
        found = Wording.objects.filter(pk=version, kind=step.kind).first() if version.isdecimal() else None
        return draft_of(step, language) if found is None else Draft(found.subject, found.text, found.html)

    def answer(self, request: HttpRequest, step: Step, language: str, form: WordingForm) -> HttpResponse:
        """Do what the pressed button says: show, save, or send it to oneself."""
        draft, samples = form.draft(), samples_of(step, of_model(request.user, MailQueue))
        act = request.POST.get("do", "show")
        try:
            if act == "save":
                save_wording(step, language, draft, samples, author=request.user.get_username())
                messages.success(request, _("The mails prepared from now on say this."))
                return redirect(self.url("write", step.kind, language))
            if act == "test":
                self.send_to_oneself(request, step, language, draft, samples)
            shown = show_draft(step, language, draft, samples)
        except UnusableWording as error:
            for part, problem in error.problems.items():
                form.add_error(part, problem)
            shown = {}
        return self.page_of(request, step, language, form, shown)

    def send_to_oneself(
        self, request: HttpRequest, step: Step, language: str, draft: Draft, samples: Mapping[str, Any]
    ) -> None:
        """Send the draft to its author, and report the result. Raises: UnusableWording."""
        address = getattr(request.user, "email", "")
        if not address:
            messages.error(request, _("Your account has no mail address."))
            return
        try:
            result = send_test(step, language, draft, samples, to=address, now=timezone.now())
        except ChannelDown as error:
            messages.error(request, str(error))
            return
        if result.outcome == AttemptOutcome.SENT:
            messages.success(request, _("It was sent to %s.") % address)
        else:
            messages.error(request, f"{result.outcome}: {result.reply.text}")

    def page_of(
        self, request: HttpRequest, step: Step, language: str, form: WordingForm, shown: Mapping[str, Any]
    ) -> HttpResponse:
        """Return the page with what was written and how it looks."""
        previews = [
            {
                "title": _("The example") if name == "example" else _("Mail %s") % name,
                "subject": subject,
                "text": body.text,
                "html": body.html,
            }
            for name, (subject, body) in shown.items()
        ]
        context = self.context(
            request,
            title=_("Wording of %(kind)s, %(language)s") % {"kind": step.kind, "language": language},
            intro=_("An empty part is the file's. Values stand in double braces: {{ name }}."),
            names=sorted(known_names(step)),
            tags=TAGS,
            filters=FILTERS,
            form=form,
            previews=previews,
            history_url=self.url("changelist", kind=step.kind, language=language),
            back=self.url("changelist"),
        )
        return TemplateResponse(request, "notify/pages/wording.html", context)
