"""Tags for the templates of mails: ``{% load notify %}``."""

from typing import Any

from django import template
from django.core.exceptions import ImproperlyConfigured
from django.template import Context
from django.urls import reverse

register = template.Library()


@register.simple_tag(takes_context=True)
def notify_url(context: Context, name: str, *args: Any, **kwargs: Any) -> str:
    """
    Return an absolute link: to a view by its name, or to a path of the site (``/invoices/17/``).

    Raises: NoReverseMatch; ImproperlyConfigured, when nobody has said where the site is.
    """
    site_url = context.get("site_url")
    if not site_url:
        raise ImproperlyConfigured("there is no site_url: set NOTIFY['SITE_URL'], or site_url of the step")
    return f"{site_url}{name if name.startswith('/') else reverse(name, args=args, kwargs=kwargs)}"
