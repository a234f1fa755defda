"""System checks: what would let the site start and fail later."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register


@register
def home_folder_is_writable(**kwargs: Any) -> list[CheckMessage]:
    home: Path = settings.PARLEY_HOME
    if home.is_dir() and not os.access(home, os.W_OK | os.X_OK):
        return [Error(f"PARLEY_HOME: {home} can't be written.", id="parley.E001",
                      hint="Give this user write access to it, or set PARLEY_HOME to another folder.")]
    return []


@register
def https_is_said_when_other_hosts_are_served(**kwargs: Any) -> list[CheckMessage]:
    """Passwords over plain HTTP are read on the way as soon as the site is reached from another machine."""
    local = {"localhost", "127.0.0.1", "[::1]", "testserver"}
    others = sorted(set(settings.ALLOWED_HOSTS) - local)
    if others and not settings.PARLEY_HTTPS:
        return [Warning(f"PARLEY_ALLOWED_HOSTS serves {', '.join(others)} but PARLEY_HTTPS is off.", id="parley.W001",
                        hint="Put a proxy with HTTPS before the site and set PARLEY_HTTPS=1.")]
    return []


@register
def browser_libraries_are_installed(**kwargs: Any) -> list[CheckMessage]:
    modules: Path = settings.NODE_MODULES
    if not modules.is_dir():
        return [Warning(f"The browser libraries are missing: {modules} does not exist.", id="parley.W002",
                        hint="`make setup` installs them.")]
    return []
