"""What the client says of its own lateness, by the kernel's stamps of what arrived."""

import random
import socket
import struct
import time

from hypothesis import given
from hypothesis import strategies as st
from load_server import ScriptServer, stream
from test_load_bench import closed, run, spec_of

from servemap.onnode import load_late
from servemap.onnode.load_late import Lateness, ask_for_stamps, late_ns


@given(
    rounds=st.lists(st.tuples(st.integers(0, 150_000_000), st.integers(1, 9)), min_size=1),
    share=st.sampled_from(sorted(load_late.SHARES)),
)
def test_shares_are_those_of_the_reads_to_a_step(rounds, share):
    late = Lateness()
    for late_by, reads in rounds:
        late.add(late_by, reads)
    whole = sorted(late_by for late_by, reads in rounds for _ in range(reads))
    place = next(i for i in range(1, len(whole) + 1) if i >= load_late.SHARES[share] * len(whole))
    figures = late.figures()
    assert figures is not None
    right = whole[place - 1]
    assert right <= figures[share] * 1e6 + 501
    assert figures[share] * 1e6 <= min(right + load_late.STEP_NS, whole[-1]) + 501


def test_more_than_the_scale_is_not_less():
    late = Lateness()
    late.add(10**10, 1)
    assert late.figures() == {"p50": 200.02, "p99": 200.02, "p995": 200.02, "max": 10_000.0}


def test_two_windows_are_counted_together():
    one, two, both = Lateness(), Lateness(), Lateness()
    draw = random.Random(1)
    for part in (one, two):
        for _ in range(50):
            late_by = draw.randrange(10**7)
            part.add(late_by, 2)
            both.add(late_by, 2)
    one.merge(two)
    assert one.figures() == both.figures()


def test_nothing_read_is_nothing_known():
    assert Lateness().figures() is None
    assert late_ns([]) is None
    assert late_ns([(socket.SOL_SOCKET, load_late.SO_TIMESTAMPNS, b"1234")]) is None


def test_a_stamp_is_subtracted_and_one_of_the_future_is_no_lateness():
    wall = time.time_ns()
    for offset, most in ((-(10**10), 2 * 10**10), (10**10, 0)):
        stamp = struct.pack("ll", *divmod(wall + offset, 10**9))
        found = late_ns([(socket.SOL_SOCKET, load_late.SO_TIMESTAMPNS, stamp)])
        assert found is not None
        assert max(-offset, 0) <= found <= most


def test_bytes_that_lie_unread_are_late_by_so_long():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as here,
        listener.accept()[0] as peer,
    ):
        ask_for_stamps(here)
        # The kernel begins to stamp some time after the first socket asked for it.
        for _ in range(200):
            peer.sendall(b"x")
            time.sleep(0.03)
            _, stamps, _, _ = here.recvmsg(10, load_late.ROOM)
            late = late_ns(stamps)
            if late is not None:
                break
    assert late is not None
    # Not all of the 30 ms: the clocks of sleep and stamp are not set alike.
    assert late >= 20_000_000


def test_a_run_says_how_late_it_was(tmp_path):
    def script(_number, body):
        return stream(body)

    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(num_prompts=20)))
    assert got.client["window_cpu_share"] > 0
    assert got.client["waited_s"] is None or got.client["waited_s"] >= 0
    late = got.client["late_ms"]
    assert late is None or 0 < late["p50"] <= late["p99"] <= late["p995"] <= late["max"]
