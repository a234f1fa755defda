"""Checks on a model's files by themselves: that they are plain, whole, no pickles and no program code."""

import io
import json
import pickletools
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

from inference.artifacts.errors import ArtifactError
from inference.artifacts.jsonfile import LFS_PREFIX, parse_object
from registry.checks.subject import Subject

MAX_PATH_CHARS = 255
HEAD_BYTES = 4096
MAX_PICKLE_BYTES = 1024 * 1024
MAX_JSON_BYTES = 4 * 1024 * 1024
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})
CODE_SUFFIXES = frozenset({".py", ".pyc", ".pyx", ".so", ".dll", ".dylib", ".exe", ".sh"})
OWN_CHECKS = (".safetensors", ".gguf")  # their readers tell them from everything else
EXECUTABLE_HEADS = {b"\x7fELF": "an ELF program", b"MZ": "a Windows program", b"#!": "a script",
                    b"\xcf\xfa\xed\xfe": "a macOS program"}
WEIGHTS_SUFFIXES = (".safetensors", ".gguf")
_PICKLE_HEAD = re.compile(rb"\x80[\x02-\x05]")
_CALLS = frozenset({"GLOBAL", "STACK_GLOBAL", "REDUCE", "INST", "OBJ", "NEWOBJ", "BUILD"})


def check_files(subject: Subject) -> str:
    """Every entry is a plain file with a usable name, and none is only a pointer to content elsewhere."""
    count = total = 0
    for name, path in subject.files():
        _check_name(name)
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise ArtifactError(name, "is a link; links are refused, so that nothing outside the folder is read")
        if not stat.S_ISREG(mode):
            raise ArtifactError(name, "is not a plain file")
        head = _head(path)
        if head.startswith(LFS_PREFIX):
            raise ArtifactError(name, "is a Git LFS pointer, not the file itself")
        if not head and name.endswith(WEIGHTS_SUFFIXES):
            raise ArtifactError(name, "is empty")
        count, total = count + 1, total + path.stat().st_size
    if not count:
        raise ArtifactError(subject.folder.name, "the folder is empty")
    return f"{count:,} plain files, {total:,} bytes, each with its own content"


def _check_name(name: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ArtifactError(name.encode("utf-8", "replace").decode(), "the name is not UTF-8") from None
    if len(name) > MAX_PATH_CHARS:
        raise ArtifactError(f"{name[:60]}…", f"the path is longer than {MAX_PATH_CHARS} characters")
    if any(ord(letter) < 32 or letter == "\\" for letter in name):
        raise ArtifactError(name.encode("unicode_escape").decode(), "the name has control characters or a backslash")


def _head(path: Path, size: int = HEAD_BYTES) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def check_pickles(subject: Subject) -> str:
    """No file is a pickle, whatever its name: reading one can run any code."""
    for name, path in subject.files():
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix.lower() in PICKLE_SUFFIXES:
            raise ArtifactError(name, "is a pickle by its suffix; pickles can run code, use safetensors or GGUF")
        if not name.endswith(OWN_CHECKS) and is_pickle(path):
            raise ArtifactError(name, "is a pickle; pickles can run code, use safetensors or GGUF")
    return "no file is a pickle, by content and by name"


def is_pickle(path: Path) -> bool:
    """Say whether the content is a pickle: of protocol 2 to 5, an old one that calls something, or torch.save's zip."""
    head = _head(path)
    if _PICKLE_HEAD.match(head):
        return True
    if head[:2] == b"PK":
        try:
            with zipfile.ZipFile(path) as archive:
                return any(name.endswith((".pkl", ".pickle")) for name in archive.namelist())
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            return b".pkl" in head
    return path.stat().st_size <= MAX_PICKLE_BYTES and _is_text_pickle(_head(path, MAX_PICKLE_BYTES))


def _is_text_pickle(data: bytes) -> bool:
    """Protocols 0 and 1 have no mark: read the instructions up to the end, and look for one that calls."""
    called = False
    try:
        for operation, _, _ in pickletools.genops(io.BytesIO(data)):
            called = called or operation.name in _CALLS
    except Exception:  # noqa: BLE001 - anything that isn't a pickle fails here in its own way
        return False
    return called


def check_code(subject: Subject) -> str:
    """No program code lies in the folder, and no configuration asks for some."""
    for name, path in subject.files():
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix.lower() in CODE_SUFFIXES:
            raise ArtifactError(name, "is program code, which is never run for a model")
        head = _head(path, 8)
        for mark, what in EXECUTABLE_HEADS.items():
            if head.startswith(mark) and not name.endswith(OWN_CHECKS) and not (mark == b"MZ" and _is_text(path)):
                raise ArtifactError(name, f"is {what}; program code is never run for a model")
        if name.endswith("config.json") and path.stat().st_size <= MAX_JSON_BYTES:
            _refuse_auto_map(name, path)
    return "no program code, and no configuration asks for the model's own (auto_map)"


def _is_text(path: Path) -> bool:
    return b"\0" not in _head(path)


def _refuse_auto_map(name: str, path: Path) -> None:
    try:
        values: dict[str, Any] = parse_object(path.read_bytes(), file=name)
    except ArtifactError:
        return  # its own check says so
    if values.get("auto_map"):
        shown = json.dumps(values["auto_map"])[:100]
        raise ArtifactError(name, f"auto_map asks for the model's own Python code, which is never run ({shown})")
