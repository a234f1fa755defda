"""The registry and everything it reads models with start without torch."""

import subprocess
import sys

CODE = """
import sys
import django
django.setup()
import registry.admin, registry.selectors, registry.services.imports, registry.services.versions
import registry.services.deployments, registry.management.commands.import_model
print([name for name in ("torch", "transformers", "numba", "celery.app") if name in sys.modules])
"""


def test_a_fresh_interpreter_with_the_registry_has_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1].startswith("[")
    assert "torch" not in done.stdout and "transformers" not in done.stdout and "numba" not in done.stdout
