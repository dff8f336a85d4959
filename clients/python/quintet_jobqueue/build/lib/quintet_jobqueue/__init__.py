"""A client of the Go Job Queue protocol.

    with Client("127.0.0.1", 11223) as queue:
        queue.add("mail", b"to: ada")
        job = queue.reserve("mail", timeout=5)
        if job is not None:
            queue.delete(job)
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType

__all__ = [
    "Client",
    "ConnectionLost",
    "Job",
    "JobNotFound",
    "JobQueueError",
    "ProtocolError",
    "ServerError",
]

DEFAULT_PORT = 11223
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

# Longer than any word or error text a server has.
STRING_MAX = 64 * 1024


class JobQueueError(Exception):
    """Anything this client raises about the server or the way to it."""


class ServerError(JobQueueError):
    """The server refused a request. The client can be used further, unless the
    server has closed the connection."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class JobNotFound(ServerError):
    """There is no such job, or it was deleted before."""


class ConnectionLost(JobQueueError, ConnectionError):
    """The connection ended before the reply. The request may have been done."""


class ProtocolError(JobQueueError):
    """The reply is none of this protocol."""


@dataclass(frozen=True)
class Job:
    """A reserved job."""

    id: int
    queue: str
    priority: int
    """0 to 4294967295; the lowest number was the most urgent."""
    ttp: int
    """Seconds until it is there for others again; 0: when this connection ends."""
    data: bytes


class Client:
    """One connection. Not to be used by several threads at once."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        timeout: float | None = 10.0,
    ) -> None:
        """Connects. ``timeout`` is how many seconds connecting, and every reply
        after the time it may take, may last; ``None``: for ever.

        Raises ``OSError`` if nobody is there, ``JobQueueError`` if it is
        somebody else.
        """
        self._timeout = timeout
        self._socket: socket.socket | None = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        try:
            self.ping()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Reserved jobs with a ttp stay reserved."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ping(self) -> None:
        """Asks for a sign of life (``CONNECT``)."""
        self._ask(b"CONNECT\0")
        self._expect("OK")

    def add(
        self,
        queue: str,
        data: bytes | bytearray | memoryview,
        priority: int = 0,
        ttp: int = 60,
    ) -> int:
        """Stores a job and answers its id.

        The lowest ``priority`` is served first, the oldest job inside it.
        ``ttp`` is how many seconds a worker has before the job is there for
        others again; 0: as long as the worker stays connected.
        """
        data = bytes(data)
        numbers = struct.pack(
            "<III",
            _within("priority", priority, U32_MAX),
            _within("ttp", ttp, U32_MAX),
            _within("length of the data", len(data), U32_MAX),
        )
        self._ask(b"ADD\0" + _name(queue) + numbers + data)
        self._expect("ADDED")
        return int(self._number("<Q"))

    def reserve(self, queue: str, timeout: int | None = None) -> Job | None:
        """Waits for a job and reserves it for its ttp.

        Answers ``None`` if there was none within ``timeout`` whole seconds, at
        least 1. Without a timeout it waits until there is a job.
        """
        if timeout is not None and _within("timeout", timeout, U32_MAX) < 1:
            raise ValueError("timeout takes None or 1 to 4294967295 seconds")
        request = b"RESERVE\0" + _name(queue) + struct.pack("<I", timeout or 0)
        self._ask(request, wait=timeout)
        if self._expect("RESERVED", "TIMEOUT") == "TIMEOUT":
            return None
        number, priority, ttp = (self._number(form) for form in ("<Q", "<I", "<I"))
        status = self._string()
        if status != "reserved":
            raise self._broken(f"a job that is {status!r} after RESERVE")
        data = self._read(self._number("<I"))
        return Job(number, queue, priority, ttp, data)

    def delete(self, job: Job | int) -> None:
        """Removes a job, whatever its state and whoever reserved it.

        Raises ``JobNotFound`` if it is gone already.
        """
        number = job.id if isinstance(job, Job) else job
        self._ask(b"DELETE\0" + struct.pack("<Q", _within("id", number, U64_MAX)))
        try:
            self._expect("OK")
        except ServerError as error:
            if error.text == f"Job {number} already deleted":
                raise JobNotFound(error.text) from None
            raise

    def _ask(self, request: bytes, wait: int | None = 0) -> None:
        """Sends a request whose reply may take ``wait`` seconds longer than
        usual (``None``: for ever)."""
        if self._socket is None:
            raise ConnectionLost("the client is closed")
        if wait is None or self._timeout is None:
            patience = None
        else:
            patience = self._timeout + wait
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(request)
            self._socket.settimeout(patience)
        except TimeoutError:
            self.close()
            raise
        except OSError as error:
            # The server may have said why before it closed.
            if not self._said_why():
                raise self._lost(error) from error

    def _said_why(self) -> bool:
        """True if a reply has come, though the request could not be sent."""
        try:
            return self._fill()
        except OSError:
            return False

    def _expect(self, *words: str) -> str:
        """Reads the reply's first word, which must be one of these."""
        word = self._string()
        if word in words:
            return word
        if word == "ERROR":
            raise ServerError(self._string())
        raise self._broken(f"reply {word!r}")

    def _string(self) -> str:
        while (end := self._received.find(b"\0")) < 0:
            if len(self._received) > STRING_MAX:
                raise self._broken("a string without end")
            self._need(len(self._received) + 1)
        text = self._read(end + 1)[:-1]
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self._broken(f"reply {text[:40]!r}") from None

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._read(struct.calcsize(form)))
        return int(number)

    def _read(self, length: int) -> bytes:
        self._need(length)
        piece = bytes(self._received[:length])
        del self._received[:length]
        return piece

    def _need(self, length: int) -> None:
        """Receives until so many bytes are there."""
        while len(self._received) < length:
            try:
                more = self._fill()
            except TimeoutError:
                # A reply that comes later would be taken for the next one's.
                self.close()
                raise
            except OSError as error:
                raise self._lost(error) from error
            if not more:
                raise self._lost("the server closed the connection")

    def _fill(self) -> bool:
        if self._socket is None:
            raise ConnectionLost("the client is closed")
        piece = self._socket.recv(1 << 16)
        self._received += piece
        return bool(piece)

    def _lost(self, why: object) -> ConnectionLost:
        self.close()
        return ConnectionLost(str(why))

    def _broken(self, what: str) -> ProtocolError:
        self.close()
        return ProtocolError(what)


def _name(queue: str) -> bytes:
    name = queue.encode()
    if not name or b"\0" in name:
        raise ValueError("a queue's name is not empty and has no zero byte")
    return name + b"\0"


def _within(what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"{what} takes 0 to {most}, not {value}")
    return value
