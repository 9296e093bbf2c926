from datetime import timedelta

from django.db.models import F

from notify.steps import DigestKey, Step, register

from .models import Parcel

#: A model that has a field of a column's name gives the field itself.
COLUMNS = ("number", "weight", "language")
COMMON = {
    "event_at": F("late_since"),
    "recipients": F("email"),
}


@register
class ParcelLate(Step):
    """Digest with the package's look, quiet hours, a mail with HTML and a task."""

    kind = "late"
    template = "late"
    task = "late"
    digest = timedelta(seconds=1)
    keeps_quiet_hours = True
    is_windowed = False
    example = {"number": "P-1", "weight": "1.50"}

    def events(self, scope):
        return Parcel.objects.values(*COLUMNS, key=F("pk"), assignee=F("email"), **COMMON)


@register
class ParcelLost(Step):
    """A digest with a look of its own, and a key that is a text."""

    kind = "lost"
    template = "lost"
    digest = timedelta(seconds=1)
    is_windowed = False
    example = {"number": "P-1", "weight": "1.50"}

    def events(self, scope):
        return Parcel.objects.values(*COLUMNS, key=DigestKey("number"), **COMMON)
