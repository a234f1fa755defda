"""The engine as a process of its own: frames, endings and what a client that misbehaves can't do."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest

from inference.client import EngineDiedError, EngineLoadError, EngineLostError, EngineProcess
from inference.protocol import (
    HEADER,
    MAX_FRAME_BYTES,
    EngineFrame,
    Loading,
    Ready,
    Rejected,
    SequenceDelta,
    Stats,
    StatsRequest,
    StepOutput,
    Submit,
    decode_engine_frame,
    encode,
)
from inference.spec import EngineConfig, SamplingParams

SERVER = "tests.inference.engine.context_server"
ENDLESS = SamplingParams(max_tokens=4000, temperature=0, ignore_eos=True)


@dataclass
class Client:
    """An engine process and everything that it said."""

    process: EngineProcess | None = None
    deltas: list[SequenceDelta] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def on_frame(self, frame: EngineFrame) -> None:
        with self.changed:
            if isinstance(frame, StepOutput):
                self.deltas += frame.deltas
            elif isinstance(frame, Rejected):
                self.rejected.append(frame)
            self.changed.notify_all()

    def on_lost(self, reason: str) -> None:
        with self.changed:
            self.lost.append(reason)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 20) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout), (self.deltas[-3:], self.rejected, self.lost)

    def submit(self, name: str, prompt: list[int], params: SamplingParams = ENDLESS) -> None:
        assert self.process
        self.process.submit(Submit(request_id=name, prompt_ids=prompt, params=params))

    def tokens(self, name: str) -> list[int]:
        return [i for delta in self.deltas if delta.request_id == name for i in delta.token_ids]

    def reason(self, name: str) -> str | None:
        return next((d.finish_reason for d in self.deltas if d.request_id == name and d.finish_reason), None)


Start = Callable[..., Client]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    clients = []

    def start(model: str = "context", **values: int) -> Client:
        client = Client()
        client.process = EngineProcess.start(EngineConfig(model=model, **values), socket_dir=tmp_path / "sockets",
                                             on_frame=client.on_frame, on_lost=client.on_lost, module=SERVER)
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.process.stop()
        assert not exists(client.process.pid)


def exists(pid: int) -> bool:
    """Whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def wait_until_gone(pid: int, timeout: float = 5) -> float:
    began = time.monotonic()
    while exists(pid):
        assert time.monotonic() - began < timeout, f"process {pid} is still there"
        time.sleep(0.01)
    return time.monotonic() - began


def sockets(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "sockets").iterdir())


def test_requests_stream_side_by_side_and_end(start: Start):
    client = start("context:0.001")
    ready = client.process.wait_ready(20)
    assert (ready.mode, ready.pid, ready.num_blocks) == ("int8", client.process.pid, 1024)
    short = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    client.submit("a", [3, 4], short)
    client.submit("b", [5], short)
    client.wait_for(lambda: client.reason("a") == client.reason("b") == "length")
    assert len(client.tokens("a")) == len(client.tokens("b")) == 20
    told = [delta for delta in client.deltas if delta.request_id == "a"]
    assert [delta.index for delta in told] == list(accumulate(len(delta.token_ids) for delta in told))
    assert told[0].index == 1 and len(told) < 20  # the first at once, the others some at a time
    stats = client.process.stats()
    assert (stats.running, stats.held_blocks, stats.output_tokens) == (0, 0, 40)


def test_progress_of_loading_is_passed_on_but_not_every_part_of_it(start: Start):
    client = start("gradual")
    loading: list[Loading] = []
    client.process.wait_ready(20, loading.append)
    parts = [frame.done for frame in loading]
    assert parts == sorted(parts)
    assert 5 <= len(parts) <= 30  # 51 reports in a second, at most one frame in 50 ms
    assert parts[-1] == 50


def test_a_refused_request_leaves_the_others_alone(start: Start):
    client = start()
    client.process.wait_ready(20)
    client.submit("bad", [])
    client.submit("good", [3], SamplingParams(max_tokens=3, temperature=0, ignore_eos=True))
    client.wait_for(lambda: client.reason("good") == "length" and len(client.rejected) == 1)
    assert client.rejected[0] == Rejected(request_id="bad", reason="the prompt is empty", field="prompt_ids")


def test_a_cancel_takes_effect_within_a_step(start: Start):
    client = start("context:0.2")
    client.process.wait_ready(20)
    client.submit("a", [3])
    client.wait_for(lambda: len(client.tokens("a")) >= 2)
    client.process.cancel("a")
    began, seen = time.monotonic(), len(client.tokens("a"))
    client.wait_for(lambda: client.reason("a") == "cancelled")
    assert time.monotonic() - began < 0.5
    assert len(client.tokens("a")) <= seen + 1
    assert client.process.stats().held_blocks == 0


def test_the_socket_is_private_and_goes_with_the_engine(start: Start, tmp_path: Path):
    client = start()
    client.process.wait_ready(20)
    (path,) = sockets(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    client.process.stop()
    assert not sockets(tmp_path)
    assert client.lost == []


def test_a_socket_folder_with_a_long_name_works(start: Start, tmp_path: Path):
    client = Client()
    client.process = EngineProcess.start(EngineConfig(model="context"), socket_dir=tmp_path / ("long" * 30),
                                         on_frame=client.on_frame, on_lost=client.on_lost, module=SERVER)
    try:
        client.process.wait_ready(20)
    finally:
        client.process.stop()


def test_a_killed_engine_is_reported_once_with_its_signal(start: Start):
    client = start("context:0.01")
    client.process.wait_ready(20)
    client.submit("a", [3])
    client.wait_for(lambda: len(client.tokens("a")) >= 3)
    os.kill(client.process.pid, signal.SIGKILL)
    client.wait_for(lambda: bool(client.lost), 3)
    assert "killed by SIGKILL" in client.lost[0]
    with pytest.raises(EngineLostError):
        client.submit("b", [3])
    with pytest.raises(EngineLostError):
        client.process.stats()
    client.process.cancel("a")
    client.process.stop()
    assert len(client.lost) == 1
    assert not exists(client.process.pid)


def test_a_model_that_cannot_be_loaded_says_why(start: Start):
    client = start("broken")
    with pytest.raises(EngineLoadError, match="^config.json: hidden_size is missing$") as caught:
        client.process.wait_ready(20)
    assert not isinstance(caught.value, EngineDiedError)
    assert client.process._process.returncode == 1


def test_an_engine_that_dies_while_loading_is_told_from_one_that_cannot_load(start: Start):
    client = start("slow")
    with pytest.raises(EngineLoadError, match="not ready within 0.5 s"):
        client.process.wait_ready(0.5)
    os.kill(client.process.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        client.process.wait_ready(20)


PARENT = """
import sys, time
from pathlib import Path
from inference.client import EngineProcess
from inference.spec import EngineConfig
engine = EngineProcess.start(EngineConfig(model=sys.argv[1]), socket_dir=Path(sys.argv[2]),
                             on_frame=print, on_lost=print, module="tests.inference.engine.context_server")
if sys.argv[1] == "context":
    engine.wait_ready(20)
else:
    time.sleep(1)
print(engine.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("model", ["context", "slow"])
def test_an_engine_ends_with_its_parent_also_while_loading(model: str, tmp_path: Path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, model, str(tmp_path / "sockets")], stdout=subprocess.PIPE)
    assert parent.stdout
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert exists(pid)
        parent.kill()
        parent.wait()
        assert wait_until_gone(pid) < 2
    assert not sockets(tmp_path)


@dataclass
class RawServer:
    """A server started by hand, to speak to it without the client."""

    process: "subprocess.Popen[bytes]"
    path: Path

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        while connection.connect_ex(str(self.path)):  # between its bind and its listen
            assert self.process.poll() is None
            time.sleep(0.01)
        return connection


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[RawServer]:
    path = tmp_path / "raw.sock"
    process = subprocess.Popen([sys.executable, "-m", SERVER, "--socket", str(path), "--config",
                                json.dumps({"model": "context:0.01"})], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.01)
    yield RawServer(process, path)
    process.stdin.close()
    process.wait(5)
    process.stderr.close()


def read_frame(connection: socket.socket) -> EngineFrame:
    (length,) = HEADER.unpack(read_exactly(connection, HEADER.size))
    return decode_engine_frame(read_exactly(connection, length))


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the engine ended the connection"
        data += part
    return data


MALFORMED = [
    ("too large", HEADER.pack(MAX_FRAME_BYTES + 1), b"more than"),
    ("not msgpack", HEADER.pack(3) + b"\xc1\xc1\xc1", b"malformed"),
    ("no frame", HEADER.pack(1) + b"\x01", b"malformed"),
    ("a parameter out of range", encode(Submit(request_id="a", prompt_ids=[3], params=ENDLESS)).replace(
        b"\xaamax_tokens\xcd\x0f\xa0", b"\xaamax_tokens\xcd\x00\x00"), b"max_tokens"),
]


@pytest.mark.parametrize(("what", "data", "logged"), MALFORMED, ids=[case[0] for case in MALFORMED])
def test_a_malformed_frame_ends_its_connection_alone(what: str, data: bytes, logged: bytes, raw: RawServer):
    with raw.connect() as bad, raw.connect() as good:
        bad.sendall(data)
        while bad.recv(4096):
            pass
        good.sendall(encode(Submit(request_id="good", prompt_ids=[3], params=ENDLESS)))
        while not isinstance(read_frame(good), StepOutput):
            pass
    line = raw.process.stderr.readline()
    while b"Ended a connection" not in line:
        line = raw.process.stderr.readline()
    assert logged in line


def test_requests_end_with_their_connection(raw: RawServer):
    with raw.connect() as leaving, raw.connect() as watcher:
        leaving.sendall(encode(Submit(request_id="a", prompt_ids=[3], params=ENDLESS)))
        wait_for_running(watcher, 1)
        leaving.close()
        wait_for_running(watcher, 0)


def wait_for_running(connection: socket.socket, count: int) -> None:
    deadline = time.monotonic() + 5
    running = -1
    while running != count:
        assert time.monotonic() < deadline, f"{running} run, not {count}"
        connection.sendall(encode(StatsRequest()))
        while not isinstance(frame := read_frame(connection), Stats):
            pass
        running = frame.running


def test_a_client_that_reads_nothing_does_not_hold_up_another(raw: RawServer):
    with raw.connect() as silent, raw.connect() as other:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        for number in range(20):
            silent.sendall(encode(Submit(request_id=f"silent {number}", prompt_ids=[3, number], params=ENDLESS)))
        other.sendall(encode(Submit(request_id="other", prompt_ids=[3], params=SamplingParams(
            max_tokens=100, temperature=0, ignore_eos=True))))
        reason = None
        while reason is None:
            frame = read_frame(other)
            if isinstance(frame, StepOutput):
                assert {delta.request_id for delta in frame.deltas} == {"other"}
                reason = frame.deltas[-1].finish_reason
        assert reason == "length"


def test_sigterm_ends_the_engine_and_removes_its_socket(raw: RawServer):
    with raw.connect() as connection:
        while not isinstance(read_frame(connection), Ready):
            pass
        raw.process.send_signal(signal.SIGTERM)
        raw.process.wait(5)
    assert not raw.path.exists()


@pytest.mark.parametrize(("config", "said"), [("{", "--config:"), ('{"model": "x", "mode": "fp4"}', "mode"),
                                              ('{"model": "x", "block_size": 3}', "power of two")])
def test_a_wrong_config_is_one_plain_sentence(config: str, said: str, tmp_path: Path):
    command = [sys.executable, "-m", "inference.server", "--socket", str(tmp_path / "s"), "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
