"""What can go wrong."""


class PinpriqError(Exception):
    """Anything this client raises about the server or the way to it."""


class ConnectionLost(PinpriqError, ConnectionError):
    """The connection has ended. What was sent last may or may not have been
    done: the protocol does not tell."""


class ReplyTimeout(PinpriqError, TimeoutError):
    """No reply in time. The connection was closed, as a late reply could be
    taken for the next one's."""
