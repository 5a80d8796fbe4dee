"""`relay.py HOST PORT [STOP]`: a proxy command; it forwards nothing once the file STOP exists."""

import os
import selectors
import socket
import sys
import time
from pathlib import Path

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    ways = selectors.DefaultSelector()
    ways.register(0, selectors.EVENT_READ, peer.fileno())
    ways.register(peer, selectors.EVENT_READ, 1)
    while True:
        for key, _ in ways.select():
            data = os.read(key.fd, 65536)
            while len(sys.argv) > 3 and Path(sys.argv[3]).exists():
                time.sleep(0.05)
            if not data:
                sys.exit()
            while data:
                data = data[os.write(key.data, data) :]
