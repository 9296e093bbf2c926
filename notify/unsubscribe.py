"""
The page of an unsubscribe link: ``path("", include("notify.urls"))``.

The token in the address is all that it asks for: no session, no cookie, no CSRF token, because mail programs send the
one click of RFC 8058. Looking at the page changes nothing, because programs that look through mails do so, too.
"""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render
from django.utils import translation
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from .operations.unsubscribe import choose_kinds, kind_choices, leave_kind
from .signing import Leaving, WrongToken, open_link

ONE_CLICK = ("List-Unsubscribe", "One-Click")


@csrf_exempt
@never_cache
def unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    """Show a recipient's kinds, unsubscribe from one with one click, or save the selection."""
    try:
        leaving = open_link(token)
    except WrongToken as error:
        raise Http404("no such link") from error
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    with translation.override(language_of(leaving)):
        if request.method == "POST" and request.POST.get(ONE_CLICK[0]) == ONE_CLICK[1]:
            leave_kind(leaving.address, leaving.kind)
            return no_referrer(
                HttpResponse(_("You get no more mails of this kind."), content_type="text/plain; charset=utf-8")
            )
        if request.method == "POST":
            choose_kinds(leaving.address, request.POST.getlist("kind"))
        values = {
            "choices": list(kind_choices(leaving.address)),
            "kind": leaving.kind,
            "is_saved": request.method == "POST",
            "language": translation.get_language(),
        }
        return no_referrer(render(request, "notify/pages/unsubscribe.html", values))


def no_referrer(response: HttpResponse) -> HttpResponse:
    """Return an answer from which no other site learns the link."""
    response["Referrer-Policy"] = "no-referrer"
    return response


def language_of(leaving: Leaving) -> str:
    """Return the recipient's language, the site's where it does not have it."""
    known = dict(settings.LANGUAGES)
    base = leaving.language.partition("-")[0]
    return leaving.language if leaving.language in known else base if base in known else settings.LANGUAGE_CODE
