"""Run a pass: ``run_pass`` is what the command, the worker and a host project call."""

from .runner import run_pass

__all__ = ["run_pass"]
