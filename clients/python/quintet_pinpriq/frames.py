"""Frames: arguments to bytes, bytes to groups. No socket.

Integers are big endian. A group is a count of 16 bits and so many packets, each
its key's length, its payload's length, the key, the payload.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Union

DEFAULT_PORT = 7050

QueueName = Union[str, bytes]
"""Any bytes, 1 to 65535 of them; a str is sent as UTF-8."""

LENGTH_MAX = 0xFFFF

PUSH = 0x70
POP = 0x50
SUBSCRIBE = 0x73
UNSUBSCRIBE = 0x75
READY = b"\x41"


class Packet(NamedTuple):
    """What is queued."""

    key: bytes
    """Packets of one key leave together. Empty for messages that were put
    through another protocol, too; those leave alone."""
    payload: bytes


def push(queue: QueueName, payload: bytes, key: bytes, priority: int, ttl_ms: int) -> bytes:
    """A packet on its way to a queue. The queue's name comes last."""
    name = _name(queue)
    _check("priority", priority, 0xFF)
    _check("ttl_ms", ttl_ms, 0xFFFF)
    _check("the length of the key", len(key), LENGTH_MAX)
    _check("the length of the payload", len(payload), LENGTH_MAX)
    head = struct.pack(">BHHBHH", PUSH, len(name), ttl_ms, priority, len(key), len(payload))
    return b"".join((head, key, payload, name))


def named(opcode: int, queue: QueueName) -> bytes:
    """A request that names a queue and nothing else."""
    name = _name(queue)
    return struct.pack(">BH", opcode, len(name)) + name


NOTHING = struct.pack(">BH", POP, 0)
"""A pop of the queue without a name, which does not exist: the reply is an
empty group."""


def _name(queue: QueueName) -> bytes:
    name = queue.encode() if isinstance(queue, str) else bytes(queue)
    if not 1 <= len(name) <= LENGTH_MAX:
        raise ValueError(f"a queue's name has 1 to {LENGTH_MAX} bytes, not {len(name)}")
    return name


def _check(what: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise ValueError(f"{what} is 0 to {most}, not {value}")


class GroupReader:
    """Reads groups from bytes as they come."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at = 0
        self._missing: int | None = None
        self._packets: list[Packet] = []

    def feed(self, data: bytes) -> None:
        """Adds what has come."""
        del self._bytes[: self._at]
        self._at = 0
        self._bytes += data

    def group(self) -> list[Packet] | None:
        """The next group, or None until all of it is there."""
        if self._missing is None:
            count = self._numbers(">H")
            if count is None:
                return None
            (self._missing,) = count
        while self._missing:
            lengths = self._numbers(">HH")
            if lengths is None:
                return None
            packet = self._packet(*lengths)
            if packet is None:
                self._at -= 4
                return None
            self._packets.append(packet)
            self._missing -= 1
        group, self._packets, self._missing = self._packets, [], None
        return group

    def _numbers(self, layout: str) -> tuple[int, ...] | None:
        end = self._at + struct.calcsize(layout)
        if end > len(self._bytes):
            return None
        numbers = struct.unpack_from(layout, self._bytes, self._at)
        self._at = end
        return numbers

    def _packet(self, key_len: int, payload_len: int) -> Packet | None:
        middle = self._at + key_len
        end = middle + payload_len
        if end > len(self._bytes):
            return None
        packet = Packet(bytes(self._bytes[self._at : middle]), bytes(self._bytes[middle:end]))
        self._at = end
        return packet
