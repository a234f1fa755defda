"""Verification of a staged model without torch: `run_checks` runs every check in a child process with limits.

`running.verify_here` runs them in this process. The child, `python -m registry.checks FOLDER --kind chat`, needs no
Django and prints JSON lines.
"""

from registry.checks.child import ChecksStopped, Limits, run_checks
from registry.checks.results import KINDS, CheckResult, Facts, Outcome, Report, SubjectKind

__all__ = ["KINDS", "CheckResult", "ChecksStopped", "Facts", "Limits", "Outcome", "Report", "SubjectKind", "run_checks"]
