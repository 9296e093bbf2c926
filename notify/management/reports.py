"""Reports of a pass and of a delivery as JSON and as text; pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..delivery.results import DeliveryReport
    from ..messages.builder import Message
    from ..passes.runner import PassReport

HEADINGS = ("step", "outcome", "candidates", "mails", "tasks", "ms", "error")


def as_json(report: "PassReport", *, is_dry_run: bool = False) -> dict[str, Any]:
    """Return the object of the contract; a dry run adds ``would_queue``."""
    shown: dict[str, Any] = {
        "pass_id": str(report.pass_id),
        "outcome": report.outcome.value,
        "ms": report.ms,
        "steps": [{**asdict(step), "outcome": step.outcome.value} for step in report.steps],
    }
    if is_dry_run:
        shown["would_queue"] = [as_queued(message) for message in report.listed]
    return shown


def as_queued(message: "Message") -> dict[str, Any]:
    """Return one message of a dry run."""
    return {
        "kind": message.event.kind,
        "key": message.event.key,
        "key2": message.event.key2,
        "state": message.state.value,
        "subject": message.subject,
        "task": message.title,
        "recipients": list(message.recipients),
        "language": message.language,
        "problem": message.problem,
    }


def as_lines(report: "PassReport") -> list[str]:
    """Return the report for a terminal."""
    lines = [f"Pass {report.pass_id}: {report.outcome.value} in {report.ms} ms"]
    if report.error:
        first, *rest = report.error.split("\n")
        lines += [first, *(f"    {line}" for line in rest)]
    if report.steps:
        rows = [
            [str(getattr(step, name) if name != "error" else first_line(step.error)) for name in HEADINGS]
            for step in report.steps
        ]
        lines += ["", *aligned([list(HEADINGS), *rows])]
    if report.listed:
        listed = [as_queued(message) for message in report.listed]
        rows = [
            [
                f"{m['kind']} {m['key']}/{m['key2']}",
                m["state"],
                ", ".join(m["recipients"]),
                m["subject"] or m["problem"],
            ]
            for m in listed
        ]
        lines += ["", "Would queue:", *aligned(rows)]
    return lines


def first_line(text: str | None) -> str:
    """Return the first line of an error; the log has it all."""
    return text.split("\n", 1)[0] if text else ""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad the columns of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def delivery_json(report: "DeliveryReport") -> dict[str, Any]:
    """Return the object of the contract, and what else there is to know."""
    until = report.paused_until
    return {
        "sent": report.sent,
        "retried": report.retried,
        "failed": report.failed,
        "uncertain": report.uncertain,
        "partial": report.partial,
        "blocked": report.blocked,
        "withdrawn": report.withdrawn,
        "held": report.held,
        "handed_over": report.handed_over,
        "paused": {"until": until.isoformat(), "reason": report.pause_reason} if until else None,
        "error": report.error or None,
    }


def delivery_lines(report: "DeliveryReport") -> list[str]:
    """Return the report for a terminal."""
    counts = {name: value for name, value in delivery_json(report).items() if isinstance(value, int) and value}
    lines = [", ".join(f"{value} {name.replace('_', ' ')}" for name, value in counts.items())] if counts else []
    reason = report.error or report.pause_reason
    if report.paused_until:
        lines.append(f"The channel pauses until {report.paused_until:%Y-%m-%dT%H:%M:%S%z}: {reason}")
    elif report.error:
        lines.append(f"Error: {report.error}")
    return lines or ["Nothing was due."]
