"""The hosts of a run and the faults between them.

`NamespaceNetwork`: every host is a network namespace of this run, joined by a bridge. Partitions and
loss are iptables rules inside the namespaces; delay, cut and half-open links come from a transparent
proxy in the dialling host's namespace. Nothing outside the namespaces is touched.

`LoopbackNetwork`: where namespaces are not permitted, everything runs on loopback and every link is a
proxy with a port of its own; a partition then is a link that holds what it is given.

Links have a direction: `block("n0", "n1")` stops what n0 sends to n1.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Protocol

from quack.cluster.bootstrap import free_ports

_CLONE_NEWNET = 0x40000000
_MARK = 7
_PORT = 9494
_PROXY_PORT = 20_000
#: Addresses for tests between hosts (RFC 2544); they exist in this run's namespaces only.
_SUBNET = "198.18.77"
_PREFIX = "qk"


class Network(Protocol):
    """What the harness needs of a network."""

    kind: str
    hosts: list[str]

    def listen(self, host: str) -> tuple[str, int]:
        """Address on which a node listens."""

    def dial(self, source: str, target: str) -> tuple[str, int]:
        """Address that `source` dials to reach `target`."""

    def command(self, host: str) -> list[str]:
        """Words to put before a command so that it runs on that host."""

    def enter(self, host: str) -> None:
        """Move this process (before it starts threads) to a host."""

    def block(self, source: str, target: str) -> None:
        """Let nothing through from source to target."""

    def lose(self, source: str, target: str, share: float) -> None:
        """Lose this share of what source sends to target."""

    def shape(self, source: str, target: str, **what: Any) -> None:
        """Change the proxy on connections that source dials; see `chaos.proxy`."""

    def heal(self) -> None:
        """End all faults."""

    def close(self) -> None:
        """Take everything down."""


class _Proxy:
    """The proxy process of one host."""

    def __init__(self, command: list[str], setup: dict[str, Any]) -> None:
        root = str(pathlib.Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [*command, sys.executable, "-m", "chaos.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._say(setup, "ready")

    def _say(self, document: dict[str, Any], expected: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(document) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != expected:
            raise RuntimeError(f"the proxy answered {answer!r} instead of {expected!r}")

    def change(self, link: str, what: dict[str, Any]) -> None:
        self._say({"link": link, "do": what}, "done")

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def namespaces_work() -> str | None:
    """Return None when namespaces with iptables can be made here, else the reason."""
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"no command '{tool}'"
    name = f"{_PREFIX}{os.getpid()}-try"
    try:
        _run("ip", "netns", "add", name)
    except RuntimeError as error:
        return str(error)
    try:
        inside = ("ip", "netns", "exec", name, "iptables", "-w")
        statistic = ("-m", "statistic", "--mode", "random", "--probability", "0.5")
        _run(*inside, "-A", "INPUT", *statistic, "-j", "DROP")
        _run(*inside, "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "9")
    except RuntimeError as error:
        return str(error)
    finally:
        _run("ip", "netns", "del", name)
    return None


def open_network(nodes: list[str], clients: list[str], seed: int, kind: str = "auto") -> Network:
    """Make the network of a run.

    Args:
        nodes: hosts that run a node.
        clients: hosts that run clients.
        seed: of the proxies' own draws.
        kind: "namespaces", "loopback" or "auto".

    """
    if kind == "auto":
        kind = "loopback" if namespaces_work() else "namespaces"
    if kind == "loopback":
        return LoopbackNetwork(nodes, clients, seed)
    return NamespaceNetwork(nodes, clients, seed)


class NamespaceNetwork:
    """Hosts as network namespaces named after this process."""

    kind = "namespaces"

    def __init__(self, nodes: list[str], clients: list[str], seed: int) -> None:
        _remove_stale()
        self.nodes = nodes
        self.hosts = [*nodes, *clients]
        self._run_name = f"{_PREFIX}{os.getpid()}"
        self._proxies: dict[str, _Proxy] = {}
        try:
            self._build()
            for number, host in enumerate(self.hosts):
                self._start_proxy(host, seed * 100 + number)
        except BaseException:
            self.close()
            raise

    def _namespace(self, host: str) -> str:
        return f"{self._run_name}-{host}"

    def _ip(self, host: str) -> str:
        return f"{_SUBNET}.{self.hosts.index(host) + 10}"

    def _build(self) -> None:
        switch = self._namespace("switch")
        _run("ip", "netns", "add", switch)
        inside = ("ip", "-n", switch, "link")
        _run(*inside, "add", "bridge0", "type", "bridge", "forward_delay", "0")
        _run(*inside, "set", "bridge0", "up")
        for host in self.hosts:
            name = self._namespace(host)
            _run("ip", "netns", "add", name)
            peer = ("peer", "name", "eth0", "netns", name)
            _run(*inside, "add", f"to-{host}", "type", "veth", *peer)
            _run(*inside, "set", f"to-{host}", "master", "bridge0", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "addr", "add", f"{self._ip(host)}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")

    def _start_proxy(self, host: str, seed: int) -> None:
        links = []
        for number, target in enumerate(self.nodes):
            if target == host:
                continue
            port = _PROXY_PORT + number
            links.append(
                {
                    "name": target,
                    "listen": ["127.0.0.1", port],
                    "target": [self._ip(target), _PORT],
                }
            )
            to_target = ("-p", "tcp", "-d", self._ip(target), "--dport", str(_PORT))
            not_proxy = ("-m", "mark", "!", "--mark", str(_MARK))
            redirect = ("-j", "REDIRECT", "--to-ports", str(port))
            self._iptables(host, "-t", "nat", "-A", "OUTPUT", *to_target, *not_proxy, *redirect)
        setup = {"mark": _MARK, "seed": seed, "links": links}
        self._proxies[host] = _Proxy(self.command(host), setup)

    def _iptables(self, host: str, *words: str) -> None:
        _run(*self.command(host), "iptables", "-w", *words)

    def listen(self, host: str) -> tuple[str, int]:
        return self._ip(host), _PORT

    def dial(self, source: str, target: str) -> tuple[str, int]:
        return self._ip(target), _PORT

    def command(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", self._namespace(host)]

    def enter(self, host: str) -> None:
        descriptor = os.open(f"/var/run/netns/{self._namespace(host)}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns to host {host}")
        finally:
            os.close(descriptor)

    def block(self, source: str, target: str) -> None:
        self._iptables(target, "-A", "INPUT", "-s", self._ip(source), "-j", "DROP")

    def lose(self, source: str, target: str, share: float) -> None:
        statistic = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.4f}")
        self._iptables(target, "-A", "INPUT", "-s", self._ip(source), *statistic, "-j", "DROP")

    def shape(self, source: str, target: str, **what: Any) -> None:
        self._proxies[source].change(target, what)

    def heal(self) -> None:
        for host, proxy in self._proxies.items():
            self._iptables(host, "-F", "INPUT")
            for target in self.nodes:
                if target != host:
                    proxy.change(target, {"heal": True})

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()
        _remove(self._run_name)


def _remove(run_name: str) -> None:
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(run_name + "-"):
            _run("ip", "netns", "del", name)


def _remove_stale() -> None:
    """Remove what a killed run left behind."""
    for line in _run("ip", "netns", "list").splitlines():
        found = re.match(rf"({_PREFIX}(\d+))-", line)
        if found and not pathlib.Path(f"/proc/{found[2]}").exists():
            _remove(found[1])


class LoopbackNetwork:
    """All hosts on loopback; every link has its own proxy port."""

    kind = "loopback"

    def __init__(self, nodes: list[str], clients: list[str], seed: int) -> None:
        self.nodes = nodes
        self.hosts = [*nodes, *clients]
        links = [(a, b) for a in self.hosts for b in nodes if a != b]
        ports = free_ports(len(nodes) + len(links))
        self._listen = dict(zip(nodes, ports, strict=False))
        self._dial = dict(zip(links, ports[len(nodes) :], strict=True))
        self._held: dict[tuple[str, str], set[str]] = {link: set() for link in links}
        setup = {
            "mark": 0,
            "seed": seed,
            "links": [
                {
                    "name": f"{source}>{target}",
                    "listen": ["127.0.0.1", port],
                    "target": ["127.0.0.1", self._listen[target]],
                }
                for (source, target), port in self._dial.items()
            ],
        }
        self._proxy = _Proxy([], setup)

    def listen(self, host: str) -> tuple[str, int]:
        return "127.0.0.1", self._listen[host]

    def dial(self, source: str, target: str) -> tuple[str, int]:
        if source == target:
            return self.listen(target)
        return "127.0.0.1", self._dial[source, target]

    def command(self, host: str) -> list[str]:
        return []

    def enter(self, host: str) -> None:
        pass  # there is one host only

    def block(self, source: str, target: str) -> None:
        for link, direction in (((source, target), "there"), ((target, source), "back")):
            if link in self._held:
                self._held[link].add(direction)
                self.shape(*link, hold=sorted(self._held[link]))

    def lose(self, source: str, target: str, share: float) -> None:
        """TCP turns loss into waiting and, at worst, broken connections: so does this."""
        if (source, target) in self._held:
            waits = [0, 400 * share / 0.2]
            self.shape(source, target, delay_ms=waits, lose_answers=share / 100)

    def shape(self, source: str, target: str, **what: Any) -> None:
        self._proxy.change(f"{source}>{target}", what)

    def heal(self) -> None:
        for link, held in self._held.items():
            held.clear()
            self.shape(*link, heal=True)

    def close(self) -> None:
        self._proxy.close()
