"""A small site for the supervisor's tests, run as a process: parts are given as JSON, lines go to stdout.

    python -m tests.webapp.ops.supervised FOLDER '[{"name": "a", "command": [...], "grace": 1.0}]'
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from webapp.ops.supervisor import Part, Stopped, Supervisor


def main() -> None:
    folder, parts = Path(sys.argv[1]), json.loads(sys.argv[2])
    supervisor = Supervisor(env=os.environ, cwd=folder, logs=folder, say=lambda line: print(line, flush=True))
    with suppress(Stopped), supervisor:
        for part in parts:
            supervisor.start(Part(**part))
        print("started", flush=True)
        supervisor.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
