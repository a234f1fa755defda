"""docs/nginx.conf with a real nginx before the live site: streams unbuffered, sockets upgraded, leaving passed on."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.webapp.api.conftest import Program
from tests.webapp.api.test_leaving import LONG, states
from tests.webapp.serving.running_node import wait_for
from webapp.ops.processes import free_port, wait_until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def proxied(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an nginx with the example's locations, without its certificate."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    example = (ROOT / "docs/nginx.conf").read_text()
    plain = example.replace("127.0.0.1:8000", f"127.0.0.1:{program.site.port}").replace(
        "listen 80;", f"listen 127.0.0.1:{free_port()};").replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    plain = "\n".join(line for line in plain.splitlines() if "ssl_certificate" not in line)
    temporary = "\n".join(f"{name}_temp_path {folder}/{name};" for name in
                          ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
                      f"http {{ access_log off; {temporary}\n{plain}\n}}\n")
    process = subprocess.Popen([nginx, "-c", str(config), "-p", str(folder), "-e", f"{folder}/start.log"],
                               stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        assert wait_until(answers, seconds=10), (folder / "start.log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait(10)


def test_tokens_come_one_by_one_and_leaving_ends_the_reply(program: Program, proxied: str) -> None:
    body = program.chat(LONG, max_tokens=1000, stream=True)
    headers = {"authorization": f"Bearer {program.key}", "x-request-id": "through-nginx"}
    times = []
    with httpx.stream("POST", f"{proxied}v1/chat/completions", json=body, headers=headers, timeout=60) as response:
        for line in response.iter_lines():
            times.append(time.monotonic())
            if line and len(times) > 30:
                break
    assert times[-1] - times[0] > 0.05  # not all at once
    wait_for(lambda: states(program, "through-nginx")[0][0] == "stopped", seconds=5, what="it is stopped")


def test_the_socket_is_upgraded(proxied: str) -> None:
    with connect(f"ws{proxied[4:]}ws/chat/", origin=proxied.rstrip("/"), open_timeout=10) as socket:  # type: ignore[arg-type]
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401  # nobody is signed in


def test_metrics_stay_inside(proxied: str) -> None:
    assert httpx.get(f"{proxied}metrics").status_code == 403
