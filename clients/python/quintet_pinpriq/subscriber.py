"""Groups as they come."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from . import frames
from .connection import Connection
from .frames import Packet, QueueName


class Subscriber:
    """One connection that is sent groups, one for each credit it gives.

    It has no `pop`: the protocol cannot tell a reply from a delivery. Not to be
    used by several threads at once.
    """

    def __init__(
        self,
        *queues: QueueName,
        host: str = "127.0.0.1",
        port: int = frames.DEFAULT_PORT,
        path: str | None = None,
        timeout: float | None = 10.0,
        prefetch: bool = False,
    ) -> None:
        """Connects and subscribes. `timeout` bounds, in seconds, how long
        connecting and sending may take, not how long groups may.

        With `prefetch` the next group is asked for when one arrives, so that it
        is on its way while this one is handled.
        """
        self._connection = Connection(host, port, path, timeout)
        self._prefetch = prefetch
        self._credit = False
        try:
            for queue in queues:
                self.subscribe(queue)
        except BaseException:
            self.close()
            raise

    def subscribe(self, queue: QueueName) -> None:
        """Groups of this queue too from now on; again has no effect."""
        self._connection.send(frames.named(frames.SUBSCRIBE, queue))

    def unsubscribe(self, queue: QueueName) -> None:
        """No more groups of this queue, but for one that is on its way."""
        self._connection.send(frames.named(frames.UNSUBSCRIBE, queue))

    def ready(self) -> None:
        """Gives the server a credit for one group, unless it has one."""
        if not self._credit:
            self._connection.send(frames.READY)
            self._credit = True

    def receive(self, timeout: float | None = None) -> list[Packet] | None:
        """The next group, at least one packet, the selected one first. None if
        nothing came in `timeout` seconds; the credit stays with the server, and
        a later call gets what it brings."""
        self.ready()
        group = self._connection.receive(timeout)
        if group is not None:
            self._credit = False
            if self._prefetch:
                self.ready()
        return group

    def __iter__(self) -> Iterator[list[Packet]]:
        """Groups for ever; ends when the subscriber is closed in between."""
        while not self._connection.closed:
            group = self.receive()
            if group is not None:
                yield group

    def close(self) -> None:
        """Closes the connection, which ends all subscriptions; again is no
        error."""
        self._connection.close()

    def __enter__(self) -> "Subscriber":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
