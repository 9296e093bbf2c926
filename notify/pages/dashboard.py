"""What notifications contribute to the dashboard."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db import connections, router
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.charts import Chart, Series, lines, stacked
from kwit.admin.components import Cell, Finding, Row, Table, Text, Tile
from kwit.admin.dashboard import Panel, PanelContent, register
from kwit.admin.keyset import count_text
from kwit.admin.time_ranges import TimeRange

from ..conf import conf
from ..delivery.epoch import try_waiting, waiting_note
from ..dialects import dialect_of
from ..explain.messages import say_first_holder, say_holder, say_logged
from ..explain.unnotified import is_alive
from ..models import Epoch, MailState, Outcome, RunLog
from ..notes import say
from ..passes.rhythm import rhythm_since
from .badges import OUTCOMES, PAUSED, STATES, age, kinds, line_of
from .stats import COUNT_MAX, LATEST_MAX, Depths, Latest, Sums, depths, latest, sent_by_kind, sums_of

#: Skips in a row that are still normal: a pass may take longer than the pause between two.
SKIPS_NORMAL = 2
#: A mail that is due this long has no delivery running.
QUEUED_NORMAL = timedelta(hours=1)
TONES = ("c1", "c2", "c3", "c4", "c5", "c6")


def url(model: str, page: str = "changelist", *args: Any, **query: Any) -> str:
    """Return an address of this engine's admin."""
    address = reverse(f"admin:notify_{model}_{page}", args=args)
    return f"{address}?{urlencode(query)}" if query else address


def build_passes(request: HttpRequest, window: TimeRange) -> PanelContent:
    """Build the panel of the passes and of what became of their mails; twelve queries."""
    sums, newest = sums_of(window), latest(window.now)
    sent, sent_cut_at = sent_by_kind(window.edges) if request.user.has_perm("notify.view_mailqueue") else (None, None)
    context = {
        "tiles": [*age_tiles(newest, window), *lock_tiles(newest), *outcome_tiles(sums, window)],
        "charts": [
            passes_chart(sums, window),
            durations_chart(sums, window),
            trouble_chart(sums, window),
            kinds_chart(_("Mails queued"), sums.queued, window),
            *([kinds_chart(_("Mails sent"), sent, window)] if sent is not None else []),
        ],
        "kinds": kinds_table(sums, window, sent),
        "sent_cut_at": sent_cut_at,
        "cut_at": sums.cut_at,
    }
    return PanelContent(context=context, findings=pass_findings(newest, window))


def age_tiles(newest: Latest, window: TimeRange) -> list[Tile]:
    """Return how long ago the last good pass and the last full scans were, and how many were skipped since."""
    tiles = []
    if newest.good is None:
        tiles.append(Tile(_("last good pass"), _("never")))
    else:
        ago = _("%s ago") % age(newest.good.started_at, now=window.now)
        tiles.append(Tile(_("last good pass"), ago, url("runlog", "change", newest.good.pk)))
    scanned = [(newest.full.get(kind), kind) for kind, _word in kinds()]
    oldest, step = min(((at, kind) for at, kind in scanned if at), default=(None, ""))
    if oldest is None or any(at is None for at, _kind in scanned):
        tiles.append(Tile(_("last full scan"), _("not by every step")))
    else:
        ago = _("%s ago") % age(oldest, now=window.now)
        moment = oldest.isoformat()
        tiles.append(Tile(_("last full scan"), ago, url("runlog", step=step, since=moment, until=moment)))
    tiles.append(Tile(_("skipped in a row"), shown_skips(newest), url("runlog", "skipped")))
    return tiles


def shown_skips(newest: Latest) -> str:
    """Return how many passes were skipped in a row; a plus sign when there may be more."""
    count = len(newest.skipped)
    return f"{count}+" if count == LATEST_MAX else str(count)


def lock_tiles(newest: Latest) -> list[Tile]:
    """Return who holds the lock: the pass that runs, else who held it when the last pass was skipped."""
    is_held = not is_lock_free()
    if newest.running is not None and (is_held or is_alive(newest.running)):
        values = {"host": newest.running.host or "?", "pid": newest.running.pid or "?"}
        holder, link = _("host %(host)s, process %(pid)s") % values, url("runlog", "change", newest.running.pk)
    elif newest.skipped:
        # By the log or by the database; the list of skips has both.
        holder, link = say_first_holder(newest.skipped[0]), url("runlog", "skipped")
    else:
        return []
    return [Tile(_("the lock is held by") if is_held else _("the lock was held by"), holder, link)]


def is_lock_free() -> bool:
    """Whether nobody holds the pass lock now; asked of the database, for the log only knows who began."""
    connection = connections[router.db_for_write(RunLog)]
    return dialect_of(connection).is_lock_free(connection)


def outcome_tiles(sums: Sums, window: TimeRange) -> list[Tile]:
    """Return the passes of the range by outcome."""
    since = timezone.localtime(sums.cut_at or window.since).isoformat(timespec="seconds")
    return [
        Tile(
            _("passes"),
            str(sum(sums.passes.get(name, ()))),
            url("runlog", outcome=name, since=since),
            badge=OUTCOMES[name],
        )
        for name in OUTCOMES
    ]


def pass_findings(newest: Latest, window: TimeRange) -> list[Finding]:
    """Return what is not well with the passes."""
    found = []
    good_at = newest.good.started_at if newest.good else None
    rhythm = rhythm_since(good_at, using=router.db_for_read(RunLog), now=window.now, settings=conf())
    if rhythm.is_quiet:
        if rhythm.last_good_at is None:
            text = _("There has been no good pass yet.")
        else:
            values = {
                "ago": age(rhythm.last_good_at, now=window.now),
                "every": timesince(window.now - rhythm.every, window.now),
            }
            text = _("The last good pass was %(ago)s ago; one is expected every %(every)s.") % values
        what_to_do = _("See that notify_pass runs regularly, from cron or as a service; or run a pass now.")
        found.append(Finding(badge=OUTCOMES[Outcome.ERROR], text=text, what_to_do=what_to_do, url=url("runlog")))
    if newest.newest is not None and newest.newest.outcome == Outcome.ERROR:
        text = _("The last pass failed: %s") % line_of(say_logged(newest.newest))
        what_to_do = _("Read the error in full; the next pass repeats what is missing.")
        link = url("runlog", "change", newest.newest.pk)
        found.append(Finding(badge=OUTCOMES[Outcome.ERROR], text=text, what_to_do=what_to_do, url=link))
    if len(newest.skipped) > SKIPS_NORMAL:
        text = ngettext("%s pass was skipped in a row.", "%s passes were skipped in a row.", len(newest.skipped))
        holder = say_holder(newest.skipped[0])
        what_to_do = (
            _("The lock was held by %s; it is free now.") % holder
            if is_lock_free()
            else _("The lock is held by %s. See whether that process still works.") % holder
        )
        found.append(
            Finding(
                badge=OUTCOMES[Outcome.SKIPPED],
                text=text % shown_skips(newest),
                what_to_do=what_to_do,
                url=url("runlog", "skipped"),
            )
        )
    for row in newest.waiting:
        text = _("%(kind)s: %(text)s") % {"kind": row.step, "text": line_of(say_logged(row))}
        what_to_do = _("They are prepared by the next passes, oldest first. If so many are a mistake, stop the passes.")
        link = url("runlog", "change", row.pk)
        found.append(Finding(badge=OUTCOMES[Outcome.WARNING], text=text, what_to_do=what_to_do, url=link))
    return found


def passes_chart(sums: Sums, window: TimeRange) -> Chart:
    """Return the passes by outcome."""
    empty = [0] * len(window.edges)
    series = [
        Series(name=OUTCOMES[name].word, tone=str(name), values=sums.passes.get(name, empty))
        for name in (Outcome.OK, Outcome.WARNING, Outcome.ERROR, Outcome.SKIPPED)
    ]
    return stacked(title=_("Passes"), labels=window.labels(), series=series, first=_("time"))


def durations_chart(sums: Sums, window: TimeRange) -> Chart:
    """Return how long passes took."""
    series = [
        Series(name=_("median"), tone="c1", values=sums.median_ms),
        Series(name=_("95th percentile"), tone="c2", values=sums.p95_ms),
    ]
    return lines(title=_("Duration of a pass"), labels=window.labels(), series=series, first=_("time"), unit=" ms")


def trouble_chart(sums: Sums, window: TimeRange) -> Chart:
    """Return skips and errors alone, which the many good passes would hide."""
    empty = [0] * len(window.edges)
    series = [
        Series(name=OUTCOMES[name].word, tone=str(name), values=sums.passes.get(name, empty))
        for name in (Outcome.ERROR, Outcome.SKIPPED)
    ]
    return stacked(title=_("Skips and errors"), labels=window.labels(), series=series, first=_("time"))


def kinds_chart(title: Text, counted: Mapping[str, Sequence[int]], window: TimeRange) -> Chart:
    """Return how many there were of each kind."""
    empty = [0] * len(window.edges)
    series = [
        Series(name=kind, tone=TONES[place % len(TONES)], values=counted.get(kind, empty))
        for place, kind in enumerate(all_kinds(counted))
    ]
    return stacked(title=title, labels=window.labels(), series=series, first=_("time"))


def all_kinds(counted: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the kinds of the site and those that only the log knows."""
    return list(dict.fromkeys([*(kind for kind, _word in kinds()), *sorted(counted)]))


def kinds_table(sums: Sums, window: TimeRange, sent: Mapping[str, Sequence[int]] | None) -> Table:
    """Return candidates, queued and sent mails and tasks per kind; a pass's numbers lead to the passes with work."""
    since = timezone.localtime(sums.cut_at or window.since).isoformat(timespec="seconds")
    # No index goes by kind and time: the newest of all kinds stand first there.
    rows, over = [], url("mailqueue", state=MailState.SENT)
    for kind in all_kinds({**sums.candidates, **(sent or {})}):
        link = url("runlog", step=kind, since=since, work=1)
        found, queued, tasks = (
            Cell(text=sum(counted.get(kind, ())), is_number=True, url=link)
            for counted in (sums.candidates, sums.queued, sums.tasks)
        )
        went = [Cell(text=sum(sent.get(kind, ())), is_number=True, url=over)] if sent is not None else []
        rows.append(Row(cells=[Cell(text=kind), found, queued, *went, tasks]))
    head = [_("kind"), _("candidates"), _("mails queued"), *([_("mails sent")] if sent is not None else []), _("tasks")]
    return Table(head=head, rows=rows, caption=_("Per kind"), numbers=frozenset({1, 2, 3, 4}))


def epoch_findings() -> list[Finding]:
    """Return that delivery waits, when the database looks restored."""
    epoch = try_waiting(router.db_for_read(Epoch))
    if epoch is None:
        return []
    text = say([waiting_note(epoch)])
    what_to_do = _("Follow docs/restoring.md; at its end: manage.py notify_release --restored")
    return [Finding(badge=PAUSED, text=text, what_to_do=what_to_do)]


def build_queues(request: HttpRequest, window: TimeRange) -> PanelContent:
    """Build the panel of the queues; eight queries."""
    found = depths(request.user)
    tiles = [
        Tile(_("mails"), count_text(number, most=COUNT_MAX), url("mailqueue", state=state), badge=STATES[state])
        for state, number in found.mails.items()
    ]
    if found.oldest is not None:
        link = url("mailqueue", "change", found.oldest.pk)
        tiles.append(Tile(_("oldest queued, due since"), age(found.oldest.due_at, now=window.now), link))
    link = url("taskqueue", open=1) if request.user.has_perm("notify.view_taskqueue") else ""
    tiles.append(Tile(_("open tasks"), count_text(found.tasks, most=COUNT_MAX), link))
    link = url("channel") if request.user.has_perm("notify.view_channel") else ""
    for channel in found.pauses:
        tiles.append(Tile(_("channel %s, until") % channel.name, moment_of(channel.paused_until), link, badge=PAUSED))
    return PanelContent(
        context={"tiles": tiles},
        findings=[*epoch_findings(), *pause_findings(found, link), *queue_findings(found, window)],
    )


def moment_of(at: datetime | None) -> str:
    """Return a moment by the reader's clock."""
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S}" if at else ""


def pause_findings(found: Depths, link: str) -> list[Finding]:
    """Return which channels pause; whoever may see them is led there."""
    return [
        Finding(
            badge=PAUSED,
            text=_("Channel %(name)s pauses until %(until)s: %(reason)s")
            % {"name": row.name, "until": moment_of(row.paused_until), "reason": line_of(row.reason)},
            what_to_do=_("Correct what is wrong with it, then resume it, or wait: no mail loses an attempt."),
            url=link,
        )
        for row in found.pauses
    ]


WHAT_TO_DO: dict[str, Text] = {
    MailState.BLOCKED: gettext_lazy("Correct the address, or release what was held."),
    MailState.FAILED: gettext_lazy("Read what the server said, then retry or leave it."),
    MailState.UNCERTAIN: gettext_lazy(
        "Perhaps sent, perhaps not: ask the recipient or the mail server's log, then decide."
    ),
}


def queue_findings(found: Depths, window: TimeRange) -> list[Finding]:
    """Return what is not well with the queues."""
    findings = []
    for state, what_to_do in WHAT_TO_DO.items():
        if number := found.mails[state]:
            text = ngettext("%(number)s mail is %(state)s.", "%(number)s mails are %(state)s.", number)
            words = {"number": count_text(number, most=COUNT_MAX), "state": STATES[state].word}
            link = url("mailqueue", state=state)
            findings.append(Finding(badge=STATES[state], text=text % words, what_to_do=what_to_do, url=link))
    if found.oldest is not None and window.now - found.oldest.due_at > QUEUED_NORMAL:
        text = _("The oldest mail in the queue has been due for %s.") % age(found.oldest.due_at, now=window.now)
        what_to_do = _("See that notify_deliver or notify_work runs.")
        link = url("mailqueue", state=MailState.QUEUED)
        findings.append(Finding(badge=STATES[MailState.QUEUED], text=text, what_to_do=what_to_do, url=link))
    return findings


register(
    Panel(
        name="notify-passes",
        title=gettext_lazy("Notifications: passes"),
        template="notify/pages/passes_panel.html",
        permission="notify.view_runlog",
        build=build_passes,
    )
)
register(
    Panel(
        name="notify-queues",
        title=gettext_lazy("Notifications: queues"),
        template="kwit/tiles_panel.html",
        permission="notify.view_mailqueue",
        build=build_queues,
        is_for_tenants=True,
    )
)
