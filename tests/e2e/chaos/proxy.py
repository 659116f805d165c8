"""A TCP proxy whose links misbehave on command: slow, uneven, cut, half-open, one-way.

It runs as a process of its own (one per simulated host). Standard input brings one JSON object per
line; each is answered by one line. The first describes the links:

    {"mark": 7, "seed": 1, "links": [{"name": "n1", "listen": ["127.0.0.1", 20001],
                                      "target": ["198.18.0.2", 9494]}]}

Later ones change a link: `{"link": "n1", "do": {...}}` with any of
    "delay_ms": [low, high]   every piece waits that long, in each direction; order within a
                              connection is kept, between connections it is not
    "hold": ["there", "back"] pieces in these directions wait until the hold ends ("there" is away
                              from the dialling side)
    "lose_answers": 0.01      with this probability a piece on its way back is dropped and the
                              connection cut: the request arrived, its answer never will
    "refuse": true            new connections are closed at once
    "cut": true               all connections of now are reset, on both sides
    "half_open": "far"|"near" the far (near) side of all connections of now is reset, while the
                              other side stays open and hears nothing until the link heals
    "heal": true              all of the above ends; half-open connections are reset
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from typing import Any

#: Bytes held per direction and connection before the sender is asked to wait.
_HELD_BYTES_MAX = 1 << 20


class Link:
    """One way from this host to one target; all connections share its faults."""

    def __init__(self, mark: int, draw: random.Random, target: tuple[str, int]) -> None:
        self.mark = mark
        self.draw = draw
        self.target = target
        self.pipes: set[Pipe] = set()
        self.reset_faults()

    def reset_faults(self) -> None:
        self.delay_ms: tuple[float, float] = (0.0, 0.0)
        self.hold: set[str] = set()
        self.lose_answers = 0.0
        self.refuse = False

    def apply(self, what: dict[str, Any]) -> None:
        if what.get("heal"):
            self.reset_faults()
            for pipe in list(self.pipes):
                pipe.heal()
        if "delay_ms" in what:
            low, high = what["delay_ms"]
            self.delay_ms = (low, high)
        if "hold" in what:
            self.hold = set(what["hold"])
        self.lose_answers = what.get("lose_answers", self.lose_answers)
        self.refuse = what.get("refuse", self.refuse)
        for pipe in list(self.pipes):
            if what.get("cut"):
                pipe.reset()
            elif "half_open" in what:
                pipe.half_open(what["half_open"])
            else:
                pipe.wake()


class Pipe:
    """One proxied connection: the near side dialled us, the far side is dialled by us."""

    def __init__(self, link: Link, near: asyncio.Transport) -> None:
        self.link = link
        self.near: asyncio.Transport | None = near
        self.far: asyncio.Transport | None = None
        self.there = Stream(self, "there")
        self.back = Stream(self, "back")
        self.halved = False
        link.pipes.add(self)

    async def dial(self) -> None:
        loop = asyncio.get_running_loop()
        plug = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        plug.setblocking(False)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.link.mark:
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, self.link.mark)
            await loop.sock_connect(plug, self.link.target)
            if self.near is None:
                plug.close()
                return
            await loop.create_connection(lambda: FarEnd(self), sock=plug)
        except OSError:
            plug.close()
            self.reset()

    def wake(self) -> None:
        self.there.flush()
        self.back.flush()

    def heal(self) -> None:
        if self.halved:
            self.reset()
        else:
            self.wake()

    def half_open(self, side: str) -> None:
        self.halved = True
        if side == "far":
            _reset(self.far)
            self.far = None
        else:
            _reset(self.near)
            self.near = None
        self.there.drop()
        self.back.drop()

    def reset(self) -> None:
        self.link.pipes.discard(self)
        _reset(self.near)
        _reset(self.far)
        self.near = self.far = None
        self.there.drop()
        self.back.drop()

    def ended(self, stream: Stream) -> None:
        """One side said that it will send no more, or is gone: pass it on after what is held."""
        if not self.halved:
            stream.end()

    def gone(self, side: str) -> None:
        if side == "near":
            self.near = None
        else:
            self.far = None
        if self.halved:
            if self.near is None and self.far is None:
                self.link.pipes.discard(self)
            return
        self.ended(self.there if side == "near" else self.back)
        if self.near is None and self.far is None:
            self.link.pipes.discard(self)


def _reset(transport: asyncio.Transport | None) -> None:
    if transport is None:
        return
    plug = transport.get_extra_info("socket")
    if plug is not None:
        linger = struct.pack("ii", 1, 0)  # close() then sends RST
        try:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except OSError:
            pass  # it is closed already
    transport.abort()


def _say_end(transport: asyncio.Transport) -> None:
    try:
        transport.write_eof()
    except OSError:
        transport.abort()  # its own end came first


class Stream:
    """One direction of a pipe: pieces with the time from which they may go."""

    def __init__(self, pipe: Pipe, direction: str) -> None:
        self.pipe = pipe
        self.direction = direction
        self.pieces: list[tuple[float, bytes]] = []
        self.held = 0
        self.ending = False
        self.timer: asyncio.TimerHandle | None = None
        self.last_due = 0.0

    @property
    def source(self) -> asyncio.Transport | None:
        return self.pipe.near if self.direction == "there" else self.pipe.far

    @property
    def sink(self) -> asyncio.Transport | None:
        return self.pipe.far if self.direction == "there" else self.pipe.near

    def put(self, data: bytes) -> None:
        link = self.pipe.link
        if self.pipe.halved:
            return
        if self.direction == "back" and link.lose_answers > link.draw.random():
            self.pipe.reset()
            return
        due = 0.0
        if link.delay_ms[1] > 0:
            now = asyncio.get_running_loop().time()
            due = max(self.last_due, now + link.draw.uniform(*link.delay_ms) / 1000)
            self.last_due = due
        self.pieces.append((due, data))
        self.held += len(data)
        self.flush()
        if self.held > _HELD_BYTES_MAX and self.source is not None:
            self.source.pause_reading()

    def flush(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        sink = self.sink
        if sink is None or self.direction in self.pipe.link.hold:
            return
        now = asyncio.get_running_loop().time()
        count = 0
        for due, data in self.pieces:
            if due > now:
                break
            sink.write(data)
            self.held -= len(data)
            count += 1
        del self.pieces[:count]
        if self.pieces:
            wait = max(0.0005, self.pieces[0][0] - now)
            self.timer = asyncio.get_running_loop().call_later(wait, self.flush)
        elif self.ending:
            self.ending = False
            _say_end(sink)
        if count and self.held <= _HELD_BYTES_MAX and self.source is not None:
            self.source.resume_reading()

    def end(self) -> None:
        if self.pieces or self.sink is None or self.direction in self.pipe.link.hold:
            self.ending = True
        else:
            _say_end(self.sink)

    def drop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.pieces.clear()
        self.held = 0


class NearEnd(asyncio.Protocol):
    """The side that dialled the proxy."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.pipe: Pipe | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.link.refuse:
            transport.abort()
            return
        self.pipe = Pipe(self.link, transport)
        self.task = asyncio.get_running_loop().create_task(self.pipe.dial())

    def data_received(self, data: bytes) -> None:
        if self.pipe is not None:
            self.pipe.there.put(data)

    def eof_received(self) -> bool:
        if self.pipe is not None:
            self.pipe.ended(self.pipe.there)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if self.pipe is not None:
            self.pipe.gone("near")


class FarEnd(asyncio.Protocol):
    """The side that the proxy dialled."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.pipe.far = transport
        self.pipe.there.flush()

    def data_received(self, data: bytes) -> None:
        self.pipe.back.put(data)

    def eof_received(self) -> bool:
        self.pipe.ended(self.pipe.back)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.pipe.gone("far")


async def serve() -> None:
    """Answer commands until standard input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    setup = json.loads(await lines.readline())
    draw = random.Random(setup["seed"])
    links: dict[str, Link] = {}
    for one in setup["links"]:
        link = Link(setup["mark"], draw, tuple(one["target"]))
        links[one["name"]] = link
        host, port = one["listen"]
        await loop.create_server(lambda link=link: NearEnd(link), host, port, backlog=512)
    print("ready", flush=True)
    while line := await lines.readline():
        command = json.loads(line)
        links[command["link"]].apply(command["do"])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
