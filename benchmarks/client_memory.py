"""Memory of the load client for a very long run: `python -m benchmarks.client_memory [REQUESTS]`.

No network: answers of 200 events of about 200 bytes are fed to the client's own classes as a window
keeps them, packed as the loop packs them in spare time, and then made into records one by one.
Prints one line of JSON; MB of 10^6 bytes.
"""

import json
import os
import random
import resource
import sys
import time

from servemap.onnode.load_call import Call, Lane
from servemap.onnode.load_keep import Keep
from servemap.onnode.load_records import build_record
from servemap.onnode.load_spec import Stream

EVENTS = 200
RECORDED = 2000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = [f" w{number}" for number in range(4000)]
EVENT = (
    'data: {"id":"cmpl-%08d","object":"text_completion","created":1764400000,"model":"a-model",'
    '"choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null}]}\n\n'
)


def reads(number: int, draw: random.Random) -> list[bytes]:
    """Return an answer as it is read: a chunk an event, the last ones together."""
    ends = ["null"] * (EVENTS - 1) + ['"length"']
    events = [EVENT % (number, draw.choice(WORDS), end) for end in ends]
    events.append("data: [DONE]\n\n")
    chunks = [f"{len(event):x}\r\n{event}\r\n".encode() for event in events]
    return [HEAD, *chunks[:-2], chunks[-2] + chunks[-1] + b"0\r\n\r\n"]


def peak_mb() -> float:
    """Return this process's peak resident memory."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def main(requests: int) -> None:
    """Keep so many answers and print what that took."""
    lane = Lane(Stream("main", "closed", 16, EVENTS, 1, 1, ()), lambda _: ("", b""))
    keep = Keep()
    calls: list[Call] = []
    wire = packed = 0
    draw, start = random.Random(1), time.monotonic_ns()
    before = peak_mb()
    for number in range(requests):
        call = Call(lane, f"main-{number:06d}", b"", start, number)
        call.sent_ns, call.attempts, call.outcome = start, 1, "complete"
        for data in reads(number, draw):
            call.response.feed(data, time.monotonic_ns())
            wire += len(data)
        calls.append(call)
        keep.add(call.response)
        while keep.crowded():
            keep.pack_one()
            packed += 1
    kept_mb = peak_mb()
    calls.reverse()
    begun, count = time.process_time(), min(RECORDED, requests)
    for _ in range(count):
        record = build_record(calls.pop(), "main", False, 0)
        json.dumps(record, separators=(",", ":"))
        assert record["status"] == "ok"
    each_us = (time.process_time() - begun) / count / EVENTS * 1e6
    found = {
        "requests": requests,
        "events": requests * EVENTS,
        "wire_mb": round(wire / 1e6, 1),
        "packed_requests": packed,
        "peak_before_mb": before,
        "peak_mb": kept_mb,
        "peak_with_records_mb": peak_mb(),
        "record_us_per_event": round(each_us, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
