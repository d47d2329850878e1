"""What goes wrong, with the reasons. Printed, one of these is what `neater explain` prints."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._neater import Candidate

__all__ = [
    "ConnectionError",
    "EndpointError",
    "EstablishmentError",
    "ForkedError",
    "NeaterError",
    "PropertyError",
    "SecurityError",
    "SendError",
]


class NeaterError(Exception):
    """The base of all exceptions of this package."""


class EstablishmentError(NeaterError, builtins.ConnectionError):
    """No connection, or no listener, could be made (the EstablishmentError event of RFC 9622 section 7.1).

    Its text names every candidate and what became of it. It is an `OSError`, as a connection that is refused is with
    sockets.
    """

    reason: str
    """`invalid-configuration`, `no-candidates`, `resolution-failed`, `establishment-failed`, `timeout`,
    `prohibited-by-policy`, `cancelled`, `resources-exhausted` or `planned` (RFC 9623 appendix B)."""
    message: str
    """The reason in words."""
    candidates: list[Candidate]
    """Every candidate, best first, with what became of it."""
    excluded: list[str]
    """Stacks that were not eligible, each with the properties that rule it out."""
    resolution: list[str]
    """What went wrong with names."""

    def __init__(
        self,
        text: str,
        *,
        reason: str = "establishment-failed",
        message: str | None = None,
        candidates: list[Candidate] | None = None,
        excluded: list[str] | None = None,
        resolution: list[str] | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.message = text if message is None else message
        self.candidates = candidates or []
        self.excluded = excluded or []
        self.resolution = resolution or []


class ConnectionError(NeaterError, builtins.ConnectionError):
    """An established connection has failed (the ConnectionError event of RFC 9622 section 10)."""

    kind: str
    """`reset`, `net`, `tls`, `quic`, `sctp`, `truncated`, `stream-reset`, `framer`, `local-abort`, `timed-out`, `closed`,
    `not-ready`, `unsupported` or `other`."""
    code: int | None
    """The code with which the peer has abandoned a stream, if it has."""

    def __init__(self, text: str, *, kind: str = "other", code: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


class SendError(NeaterError):
    """A message cannot be sent; the connection may go on (the SendError event of RFC 9622 section 9.2.2.3)."""

    kind: str
    """`blocked`, `message-too-large`, `after-final`, `invalid-message-properties`, `framer`, `unfinished`, `expired` or
    `other`."""
    limit: int | None
    """Where it is `blocked`: how many bytes would fit. Where it is `message-too-large`: the largest message, in bytes."""

    def __init__(self, text: str, *, kind: str = "other", limit: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.limit = limit


class PropertyError(NeaterError, ValueError):
    """A property, an endpoint, a scenario or another text is not as it should be."""

    kind: str
    """`unknown` (there is no such property), `invalid` (its value, or it cannot be set there), `read-only` or
    `parse` (a text that cannot be read)."""

    def __init__(self, text: str, *, kind: str = "invalid") -> None:
        super().__init__(text)
        self.kind = kind


class SecurityError(NeaterError, ValueError):
    """Security parameters make no sense, or a certificate or key cannot be used."""


class EndpointError(NeaterError):
    """The endpoints of a connection were not changed (RFC 9622 section 7.5). The connection goes on."""


class ForkedError(ConnectionError, RuntimeError):
    """The object belongs to the parent of this process. After `fork`, make a transport system of your own."""

    def __init__(self, text: str) -> None:
        super().__init__(text, kind="forked")
