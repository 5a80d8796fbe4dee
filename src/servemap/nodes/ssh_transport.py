"""The ssh transport below our channels: what paramiko does not do by itself.

It remembers when the peer was heard last, and how a program ended that a signal killed.
"""

import signal
import socket
import time
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST
from paramiko.packet import Packetizer

# Covers a round trip of 20 ms at 200 MB/s; larger ones leave the processor caches and cost more.
WINDOW_BYTES = 4 << 20
PACKET_BYTES = 1 << 15
# AES in hardware, one pass for cipher and digest; what else the peers agree on is as it was.
FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
# A signal that has no name in RFC 4254 6.10 is sent without its number.
UNNAMED_SIGNAL = -(signal.NSIG)

KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT = 2, 1, 3
USER_TIMEOUT_MS = 6000


class HeardPacketizer(Packetizer):  # type: ignore[misc]
    """Notes the time of the last whole message of the peer."""

    heard_s = 0.0

    def read_message(self) -> Any:
        """Read a message; see Packetizer.read_message."""
        found = super().read_message()
        self.heard_s = time.monotonic()
        return found


def _on_request(channel: Any, message: Any) -> None:
    """Handle a channel request; exit-signal (RFC 4254, 6.10), which paramiko passes over."""
    if message.get_text() == "exit-signal":
        message.get_boolean()
        channel.ended_by = message.get_text()
    # behind the channel's number, which was read before
    message.rewind()
    message.get_int()
    channel._handle_request(message)  # noqa: SLF001 - the handler that this one stands before


class Transport(paramiko.Transport):  # type: ignore[misc]
    """A paramiko transport with our window, ciphers and handlers."""

    # No public way leads to how a channel's messages are handled.
    _channel_handler_table = {  # noqa: RUF012
        **paramiko.Transport._channel_handler_table,  # noqa: SLF001
        MSG_CHANNEL_REQUEST: _on_request,
    }

    def __init__(self, sock: Any, **options: Any) -> None:
        super().__init__(
            sock,
            default_window_size=WINDOW_BYTES,
            default_max_packet_size=PACKET_BYTES,
            packetizer_class=HeardPacketizer,
            **options,
        )
        security = self.get_security_options()
        others = [name for name in security.ciphers if name not in FAST_CIPHERS]
        security.ciphers = [*FAST_CIPHERS, *others]


def exit_code(channel: Any) -> int | None:
    """Return how a program ended, negative for a signal; None where the peer did not say."""
    name = getattr(channel, "ended_by", None)
    if name is not None:
        number = getattr(signal, f"SIG{name}", None)
        return UNNAMED_SIGNAL if number is None else -int(number)
    code = int(channel.exit_status)
    return None if code < 0 else code


def tune(sock: socket.socket) -> None:
    """Let a TCP socket send at once and notice a peer that is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEP_IDLE_S),
        (socket.TCP_KEEPINTVL, KEEP_INTERVAL_S),
        (socket.TCP_KEEPCNT, KEEP_COUNT),
        (socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
