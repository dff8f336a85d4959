"""One socket, and the groups that come out of it."""

from __future__ import annotations

import socket
import time

from .errors import ConnectionLost, ReplyTimeout
from .frames import GroupReader, Packet

_READ_BYTES = 64 * 1024


class Connection:
    """A connection that sends bytes and receives groups."""

    def __init__(self, host: str, port: int, path: str | None, timeout: float | None) -> None:
        self._timeout = timeout
        self._groups = GroupReader()
        try:
            self._socket: socket.socket | None = _open(host, port, path, timeout)
        except TimeoutError as error:
            raise ReplyTimeout(f"no connection in {timeout} s") from error
        except OSError as error:
            where = path or f"{host}:{port}"
            raise ConnectionLost(f"cannot connect to {where}: {error}") from error

    @property
    def closed(self) -> bool:
        return self._socket is None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, data: bytes) -> None:
        """Sends all of it, or closes and raises."""
        open_socket = self._open_socket()
        try:
            open_socket.settimeout(self._timeout)
            open_socket.sendall(data)
        except TimeoutError as error:
            self.close()
            raise ReplyTimeout(f"the server took nothing in {self._timeout} s") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(str(error)) from error

    def reply(self) -> list[Packet]:
        """The next group, which is on its way."""
        group = self.receive(self._timeout)
        if group is None:
            self.close()
            raise ReplyTimeout(f"no reply in {self._timeout} s")
        return group

    def receive(self, timeout: float | None) -> list[Packet] | None:
        """The next group; None if it was not whole after `timeout` seconds.
        What has come of it by then is kept."""
        end = None if timeout is None else time.monotonic() + timeout
        while (group := self._groups.group()) is None:
            open_socket = self._open_socket()
            left = None if end is None else max(end - time.monotonic(), 0.0)
            try:
                open_socket.settimeout(left)
                data = open_socket.recv(_READ_BYTES)
            except (BlockingIOError, TimeoutError):
                return None
            except OSError as error:
                self.close()
                raise ConnectionLost(str(error)) from error
            if not data:
                self.close()
                raise ConnectionLost("the server closed the connection")
            self._groups.feed(data)
        return group

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost("the connection is closed")
        return self._socket


def _open(host: str, port: int, path: str | None, timeout: float | None) -> socket.socket:
    if path is not None:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.settimeout(timeout)
            unix.connect(path)
        except OSError:
            unix.close()
            raise
        return unix
    tcp = socket.create_connection((host, port), timeout=timeout)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tcp
