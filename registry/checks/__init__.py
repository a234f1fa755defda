"""Verification of a staged model without torch: `run_checks` in a child process with limits, `verify_here` in this one.

The child is `python -m registry.checks FOLDER --kind chat`; it needs no Django and prints JSON lines.
"""

from registry.checks.results import CheckResult, Facts, Outcome, Report

__all__ = ["CheckResult", "Facts", "Outcome", "Report"]
