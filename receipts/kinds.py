"""The names under which kinds of change were declared at first; see ``receipts.change_types``."""

from .change_types import ChangeKind, each_kind, get_kind, register

__all__ = ["ChangeKind", "each_kind", "get_kind", "register"]
