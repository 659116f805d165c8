"""Goal: every fault of the network does what it says, and is gone after heal()."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from chaos.network import Network, namespaces_work, open_network

#: Serves one byte back for each byte; announces itself.
SERVER = """
import socket, sys, threading
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
def echo(plug):
    try:
        while data := plug.recv(100):
            plug.sendall(data)
    except OSError:
        pass
while True:
    threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
"""

#: For each line "connect", "ping", or "wait" says what happened and how long it took.
CLIENT = """
import json, socket, sys, time
plug = None
for line in sys.stdin:
    begun = time.monotonic()
    try:
        if line.strip() == "connect":
            plug = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)
            said = "ok"
        else:
            plug.settimeout(2)
            if line.strip() == "ping":
                plug.sendall(b"x")
            said = {b"x": "ok", b"": "end"}[plug.recv(1)]
    except TimeoutError:
        said = "timeout"
    except OSError:
        said = "reset"
    print(json.dumps([said, time.monotonic() - begun]), flush=True)
"""


class Pair:
    """A client on c0 and an echo server on n0."""

    def __init__(self, network: Network) -> None:
        self.network = network
        words = [str(word) for word in network.listen("n0")]
        self.server = self._start("n0", SERVER, words)
        assert self.server.stdout is not None
        assert self.server.stdout.readline().strip() == "ready"
        words = [str(word) for word in network.dial("c0", "n0")]
        self.client = self._start("c0", CLIENT, words)

    def _start(self, host: str, code: str, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.network.command(host), sys.executable, "-c", code, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what: str) -> tuple[str, float]:
        assert self.client.stdin is not None and self.client.stdout is not None
        self.client.stdin.write(what + "\n")
        self.client.stdin.flush()
        said, spent = json.loads(self.client.stdout.readline())
        return said, spent

    def close(self) -> None:
        for process in (self.client, self.server):
            process.kill()
            process.communicate()


@pytest.fixture(params=["namespaces", "loopback"], scope="module")
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    if request.param == "namespaces" and (why := namespaces_work()):
        pytest.skip(f"no network namespaces here: {why}")
    opened = open_network(["n0", "n1"], ["c0"], 1, request.param)
    with contextlib.closing(opened):
        yield opened


@pytest.fixture
def pair(network: Network) -> Iterator[Pair]:
    opened = Pair(network)
    with contextlib.closing(opened):
        assert opened.do("connect")[0] == "ok"
        assert opened.do("ping")[0] == "ok"
        yield opened
    network.heal()


def healed(pair: Pair) -> None:
    pair.network.heal()
    deadline = time.monotonic() + 10
    while True:
        if pair.do("connect")[0] == "ok" and pair.do("ping")[0] == "ok":
            return
        assert time.monotonic() < deadline, "the link does not heal"


@pytest.mark.parametrize("ends", [("c0", "n0"), ("n0", "c0")])
def test_block_stops_either_direction(pair: Pair, ends: tuple[str, str]) -> None:
    pair.network.block(*ends)
    assert pair.do("ping")[0] == "timeout"
    healed(pair)


def test_loss_slows_down_and_heals(pair: Pair) -> None:
    pair.network.lose("c0", "n0", 0.5)
    pair.network.lose("n0", "c0", 0.5)
    answers = [pair.do("ping") for _ in range(8)]
    assert max(spent for _, spent in answers) > 0.05
    healed(pair)


def test_delay_is_at_least_as_long_as_asked(pair: Pair) -> None:
    pair.network.shape("c0", "n0", delay_ms=[100, 150])
    said, spent = pair.do("ping")
    assert said == "ok"
    assert spent >= 0.2  # there and back
    healed(pair)
    assert pair.do("ping")[1] < 0.2


def test_cut_resets(pair: Pair) -> None:
    pair.network.shape("c0", "n0", cut=True)
    assert pair.do("wait")[0] in ("reset", "end")
    healed(pair)


def test_half_open_hears_nothing_until_it_heals(pair: Pair) -> None:
    pair.network.shape("c0", "n0", half_open="far")
    assert pair.do("ping")[0] == "timeout"
    pair.network.heal()
    assert pair.do("wait")[0] in ("reset", "end")
    healed(pair)


def test_lost_answer_cuts_the_connection(pair: Pair) -> None:
    pair.network.shape("c0", "n0", lose_answers=1.0)
    assert pair.do("ping")[0] in ("reset", "end")
    healed(pair)


def test_refuse_turns_new_connections_away(pair: Pair) -> None:
    pair.network.shape("c0", "n0", refuse=True)
    said = pair.do("connect")[0]
    assert said == "reset" or pair.do("ping")[0] in ("reset", "end")
    healed(pair)


def test_held_bytes_arrive_in_order_after_heal(pair: Pair) -> None:
    pair.network.shape("c0", "n0", hold=["back"])
    assert pair.do("ping")[0] == "timeout"
    pair.network.heal()
    assert pair.do("wait")[0] == "ok"
