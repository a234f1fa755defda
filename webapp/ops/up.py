"""`python -m webapp.ops.up`: prepares a site, runs its processes under the supervisor and says how to sign in."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from django.core.exceptions import ImproperlyConfigured

from webapp.config.site import SOURCE_FOLDER
from webapp.ops.demo import DEMO_CHAT
from webapp.ops.processes import follow_parent
from webapp.ops.site import CannotStart, Site, manage
from webapp.ops.supervisor import PartFailed, Stopped, Supervisor


def main() -> int:
    """Run until stopped; 0 after a stop, 1 with one sentence when the site can't start."""
    if "MAKELEVEL" in os.environ:  # a killed `make` takes no child along, so follow it
        follow_parent(signal.SIGTERM)
    try:
        site = Site.from_environment()
        with site.locked():
            site.check_ports()
            site.write_secrets()
            run(site)
    except (CannotStart, PartFailed, ImproperlyConfigured) as error:
        print(f"Parley can't start: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def run(site: Site) -> None:
    """Start the parts in order, wait for the chat model, then look after them. Raises CannotStart and PartFailed."""
    say = _reporter(site)
    with Supervisor(env=site.child_environment(), cwd=SOURCE_FOLDER, logs=site.logs, say=say) as supervisor:
        with suppress(Stopped):
            if part := site.valkey():
                supervisor.start(part)
            sign_in = _prepare(supervisor)
            try:
                supervisor.start(site.node())
                supervisor.start(site.web())
                _wait_for_model(supervisor)
            finally:  # a password that was made is shown in any case: nothing else knows it
                print(f"\nParley: {site.url}\n{sign_in}", flush=True)
            print(f"Logs: {site.logs}. Ctrl-C stops everything.", flush=True)
            supervisor.run()
        say("Stopping.")
    say("Stopped.")


def _prepare(supervisor: Supervisor) -> str:
    """Bring database, files, administrator and demo models up to date; return how to sign in, in words."""
    read, write = os.pipe()
    with open(read) as answer:
        task = supervisor.run_beside(manage("prepare_site", "--answer-fd", str(write)), pass_fds=[write])
        os.close(write)
        while task.status is None:
            supervisor.tick()
        if task.status:
            raise CannotStart("preparing the site failed; the reason stands above.")
        password = json.load(answer)["admin_password"]
    if password:
        return f"Sign in as admin with the password {password}  (shown only this once)"
    return "Sign in as admin, with the password of the first start"


def _wait_for_model(supervisor: Supervisor) -> None:
    """Show how the demo model loads, until it is loaded or has failed."""
    task = supervisor.run_beside(manage("wait_for_model", DEMO_CHAT.name))
    while task.status is None:
        supervisor.tick()


def _reporter(site: Site) -> Callable[[str], None]:
    """Return a function that writes a line to the terminal and, with the time, to the supervisor's log."""

    def say(line: str) -> None:
        with suppress(OSError):  # the terminal may be gone
            print(line, flush=True)
        with suppress(OSError), open(site.logs / "supervisor.log", "a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    return say


if __name__ == "__main__":
    sys.exit(main())
