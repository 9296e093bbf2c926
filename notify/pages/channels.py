"""The ways out: which one pauses, until when and why; a pause can be ended by hand."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kwit.admin.actions import ListAction
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Cell, Detail, Fact, Row, Section

from ..clock import is_paused, paused
from ..delivery.channels import resume_channel
from ..models import Channel
from .badges import PAUSED, WORKS, line_of


def resume(pks: Sequence[int], *, actor: str, using: str) -> int:
    """End the pauses of channels."""
    names = Channel.objects.using(using).filter(pk__in=pks).order_by("pk").values_list("name", flat=True)
    return sum(resume_channel(name, using=using) for name in list(names))


@admin.register(Channel)
class ChannelAdmin(ReadOnlyAdmin):
    """Which way out pauses, until when and why."""

    intro = _("A channel has a line here once it has paused. While it pauses, no mail loses an attempt.")
    empty_text = _("No channel has ever paused.")
    label_field = "name"
    head = (
        _("channel"),
        _("state"),
        _("paused since"),
        _("paused until"),
        _("failures in a row"),
        _("why"),
    )
    numbers = frozenset({4})
    list_actions = (
        ListAction(
            name="resume",
            label=_("Resume"),
            explains=_("Mails go out again at once. If the trouble is still there, the channel pauses again, longer."),
            permission="notify.resume_channel",
            verb=resume,
            eligible=lambda rows: rows.filter(paused(timezone.now())),
        ),
    )

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per channel."""
        return [Row(cells=self.cells(channel), key=str(channel.pk), name=channel.name) for channel in found]

    def cells(self, channel: Channel) -> list[Cell]:
        """Return a channel's cells."""
        is_resting = is_paused(channel.paused_until, channel.paused_at, now=timezone.now())
        return [
            Cell(text=channel.name, url=self.url("change", channel.pk)),
            Cell(badge=PAUSED if is_resting else WORKS),
            Cell(at=channel.paused_at) if is_resting else Cell(text=NONE),
            Cell(at=channel.paused_until) if is_resting else Cell(text=NONE),
            Cell(text=channel.failures, is_number=True),
            Cell(text=line_of(channel.reason)),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a channel in full."""
        cells = self.cells(row)
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head[1:5], cells[1:5], strict=True)]
        sections = [Section(facts=facts)]
        if row.reason:
            sections.append(Section(title=_("Why it paused last"), text=row.reason))
        return Detail(title=row.name, badge=cells[1].badge, sections=sections)
