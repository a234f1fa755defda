"""Which Parley this is."""

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def parley_version() -> str:
    """Return the installed version, empty when it runs from a checkout that isn't installed."""
    try:
        return version("parley")
    except PackageNotFoundError:
        return ""
