import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_server import cut

from servemap.onnode.load_http import FramingError, Response

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def read(parts: list[bytes]) -> tuple[Response, list[bool]]:
    response = Response()
    return response, [response.feed(part, number) for number, part in enumerate(parts)]


def chunked(payloads: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in payloads]
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    extension=st.sampled_from([b"", b";a=b", b" ;x"]),
    trailer=st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: 1\r\nB: 2\r\n"]),
    interim=st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]),
    places=st.lists(st.integers(0, 2000), max_size=30),
)
def test_chunked_body_is_the_same_however_it_is_cut(payloads, extension, trailer, interim, places):
    wire = interim + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    wire += chunked(payloads, extension, trailer)
    response, done = read(cut(wire, places))
    assert b"".join(response.pieces) == b"".join(payloads)
    assert done == [False] * (len(done) - 1) + [True]
    assert response.status == 200
    assert response.keep_alive
    assert not response.surplus
    assert response.times == sorted(response.times)


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8),
    size_line=st.sampled_from([b"%x\r\n", b"%X\r\n", b"0%x\r\n", b"%x;a=b\r\n", b"%x \r\n"]),
    odd=st.integers(0, 7),
)
def test_reads_of_one_whole_chunk_are_as_any_others(payloads, size_line, odd):
    response = Response()
    assert not response.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 0)
    for number, payload in enumerate(payloads):
        line = (size_line if number >= odd else b"%x\r\n") % len(payload)
        assert not response.feed(line + payload + b"\r\n", number)
        assert response.pieces[number:] == [payload]
        assert response.times[number:] == [number]
    assert response.feed(b"0\r\n\r\n", len(payloads))
    assert not response.surplus


@pytest.mark.parametrize("chunk", [b"3\r\nab\r\n\n", b"3\r\nabcd\r", b"3\r\nabc\n\r"])
def test_a_whole_chunk_must_end_where_its_size_says(chunk):
    response = Response()
    response.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 0)
    with pytest.raises(FramingError):
        response.feed(chunk, 1)


@given(body=st.binary(max_size=60), places=st.lists(st.integers(0, 300), max_size=20))
def test_body_of_known_length(body, places):
    wire = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    response, done = read(cut(wire, places))
    assert b"".join(response.pieces) == body
    assert done == [False] * (len(done) - 1) + [True]


@given(body=st.binary(max_size=60), places=st.lists(st.integers(0, 300), max_size=20))
def test_body_to_the_close(body, places):
    response, done = read(cut(HEAD + b"\r\n" + body, places))
    assert b"".join(response.pieces) == body
    assert not any(done)
    assert response.end()
    assert not response.keep_alive


@given(size=st.integers(1, 120))
def test_a_cut_chunked_response_is_never_complete(size):
    wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked([b"data: 1\n\n", b"0\r\n\r\n"])
    response, done = read([wire[: min(size, len(wire) - 1)]])
    assert not any(done)
    assert not response.end()


def test_a_payload_that_looks_like_the_end_is_not_the_end():
    wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    response = Response()
    assert not response.feed(wire + b"5\r\n0\r\n\r\n\r\n", 1)
    assert response.feed(b"0\r\n\r\n", 2)
    assert b"".join(response.pieces) == b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_keep_alive(head, keeps):
    response = Response()
    assert response.feed(head, 1)
    assert response.keep_alive is keeps


@pytest.mark.parametrize("tail", [b"x", b"HTTP/1.1 200 OK\r\n"])
@pytest.mark.parametrize(
    "wire",
    [
        HEAD + b"Content-Length: 2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_bytes_beyond_the_end_are_noticed(wire, tail):
    response = Response()
    assert response.feed(wire + tail, 1)
    assert response.surplus
    assert b"".join(response.pieces) in (b"ok", b"")


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        HEAD + b"Content-Length: -2\r\n\r\n",
        HEAD + b"Content-Length: " + b"1" * 5000 + b"\r\n\r\n",
        HEAD + b"Content-Length: 2, 2\r\n\r\n",
        HEAD + b"Content-Length: \xb2\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 4000 + b"\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000,
    ],
)
def test_what_is_no_response_is_refused(wire):
    with pytest.raises(FramingError):
        Response().feed(wire, 1)
