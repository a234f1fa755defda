"""What a site needs before its first page: tables, static files, an administrator, the demo models. Safe to repeat.

Each step returns one line that says what it did, or "" when there was nothing to do.
"""

import hashlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.staticfiles.finders import get_finders
from django.core.exceptions import ObjectDoesNotExist
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from registry.errors import ImportRefused
from registry.loads import version_load
from registry.selectors import version_by_name
from registry.services.deployments import deployment_load
from registry.services.imports import version_import
from webapp.config import env
from webapp.ops.demo import DEMO_CHAT, DemoModel

if TYPE_CHECKING:
    from registry.models import Version

ADMIN = "admin"
DEMO_MODES: dict[str, Literal["int8", "float32"] | None] = {"": None, "int8": "int8", "float32": "float32"}


def database_migrate() -> str:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not plan:
        return ""
    call_command("migrate", verbosity=0, interactive=False)
    return f"Database: {len(plan)} migrations applied."


def static_files_collect() -> str:
    """Copy the static files under their hashed names, when any source file changed since the last time."""
    stamp = Path(settings.STATIC_ROOT) / "sources.sha256"
    sources = _static_sources()
    if stamp.exists() and stamp.read_text() == sources:
        return ""
    call_command("collectstatic", verbosity=0, interactive=False, clear=True)
    stamp.write_text(sources)
    return "Static files collected."


def _static_sources() -> str:
    """Return a hash over path, size and time of every static file."""
    seen = hashlib.sha256(Path(__file__).parents[1].joinpath("config/static_storage.py").read_bytes())
    for finder in get_finders():
        for path, storage in finder.list([]):
            file = Path(storage.path(path))
            seen.update(json.dumps([str(file), file.stat().st_size, file.stat().st_mtime_ns]).encode())
    return seen.hexdigest()


def administrator_create() -> tuple[str, str]:
    """Make the first administrator unless there is one.

    Returns the line, and the password if it was made up here (PARLEY_ADMIN_PASSWORD is not repeated).
    """
    User = get_user_model()
    if User.objects.filter(is_superuser=True).exists():
        return "", ""
    given = env.text("PARLEY_ADMIN_PASSWORD")
    password = given or secrets.token_urlsafe(12)
    User.objects.create_superuser(ADMIN, password=password)
    return f"Administrator {ADMIN} created.", "" if given else password


def version_or_none(name: str) -> "Version | None":
    """Return the newest ready version of that name, None when there is none."""
    try:
        return version_by_name(name)
    except ObjectDoesNotExist:
        return None


def demo_model_import(demo: DemoModel) -> str:
    if version_or_none(demo.name) is not None:
        return ""
    if demo.path is None:
        return f"Demo model {demo.name} left out: the package {demo.package} is not installed."
    try:
        version = version_import(path=demo.path, name=demo.name, kind=demo.kind)
    except ImportRefused as error:
        return f"Demo model {demo.name} left out: {error}"
    return f"Demo model {version} imported."


def demo_chat_wish() -> str:
    """Wish the demo chat model loaded at the first start, and again after a failure; a later unloading is respected.

    PARLEY_DEMO_MODE names its numeric mode, and wishes it anew.
    """
    version = version_or_none(DEMO_CHAT.name)
    if version is None:
        return ""
    mode = DEMO_MODES[env.choice("PARLEY_DEMO_MODE", among=("int8", "float32"), default="")]
    if mode is None and version.deployments.exists() and version_load(version).state != "failed":
        return ""
    deployment_load(version=version, settings={"mode": mode} if mode else {})
    return f"{version} is to be loaded."
