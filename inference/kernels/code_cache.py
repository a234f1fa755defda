"""Where numba keeps compiled kernels on disk: one folder per content of the kernel sources.

Numba notices a change in a compiled function's own file only. Our kernels are built from several files (intrinsics
write LLVM IR into their callers), so the folder's name carries a hash of all of them, and of numba's version.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import numba
from numba.core import config

INFERENCE = Path(__file__).resolve().parent.parent


def source_hash() -> str:
    """Return a short hash of everything that decides the machine code: kernel and model sources, numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in ("kernels", "models"):
        for path in sorted((INFERENCE / folder).rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def use_code_cache() -> Path:
    """Point numba's cache at a folder for this code and return it. Call before the first kernel is defined.

    NUMBA_CACHE_DIR comes first, then a folder beside the sources, then the user's cache, then a temporary folder.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    homes = [Path(given)] if given else []
    homes += [Path(__file__).parent / "__pycache__", Path("~/.cache/parley").expanduser()]
    name = f"kernels-{source_hash()}"
    for home in homes:
        if _writable(home / name):
            break
    else:
        home = Path(tempfile.mkdtemp(prefix="parley-kernels-"))
    config.CACHE_DIR = str(home / name)
    return home / name
