"""A client of the pinpriq protocol.

    with Client("127.0.0.1", 7050) as queue:
        queue.push("jobs", b"resize 17", key=b"picture 17")
        packets = queue.pop("jobs")

    with Subscriber("jobs", "mail") as groups:
        for group in groups:
            ...
"""

from .client import Client
from .errors import ConnectionLost, PinpriqError, ReplyTimeout
from .frames import DEFAULT_PORT, Packet
from .subscriber import Subscriber

__all__ = [
    "DEFAULT_PORT",
    "Client",
    "ConnectionLost",
    "Packet",
    "PinpriqError",
    "ReplyTimeout",
    "Subscriber",
]
