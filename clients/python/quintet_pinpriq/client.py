"""Push and pop."""

from __future__ import annotations

from types import TracebackType

from . import frames
from .connection import Connection
from .frames import Packet, QueueName


class Client:
    """One connection. Not to be used by several threads at once."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = frames.DEFAULT_PORT,
        *,
        path: str | None = None,
        timeout: float | None = 10.0,
    ) -> None:
        """Connects, to a Unix socket if `path` is given. `timeout` bounds, in
        seconds, how long the server may take; None: for ever."""
        self._connection = Connection(host, port, path, timeout)

    def push(
        self,
        queue: QueueName,
        payload: bytes,
        *,
        key: bytes = b"",
        priority: int = 1,
        ttl_ms: int = 0,
    ) -> None:
        """Sends a packet. There is no reply: see `flush`.

        Priority 1 leaves first and 255 last; 0 leaves only with another packet
        of its key. The packet is gone after `ttl_ms`, up to 65535, and stays
        for ever if that is 0, unless the listener reads it otherwise.
        """
        self._connection.send(frames.push(queue, payload, key, priority, ttl_ms))

    def flush(self) -> None:
        """Waits until the server has decided on every push before this, and
        has stored those that it took. It does not tell which it refused."""
        self._connection.send(frames.NOTHING)
        self._connection.reply()

    def pop(self, queue: QueueName) -> list[Packet]:
        """Takes the best packet, the newest of several, and with it all others
        of its key; an empty list if there is none. Does not wait."""
        self._connection.send(frames.named(frames.POP, queue))
        return self._connection.reply()

    def close(self) -> None:
        """Closes the connection; again is no error."""
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
