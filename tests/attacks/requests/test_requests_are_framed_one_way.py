"""Where a request ends can be read in one way only; what could be read in two is refused and the connection closed.

The attack (request smuggling): a request whose length a proxy before the server reads otherwise than the server does,
so that the tail of one client's request becomes the beginning of the next client's. Sources: RFC 9112, sections 2.2,
3.2, 5.1, 5.2, 6.1 to 6.3, 7.1; the cases of published attacks on proxies.
"""

from __future__ import annotations

import json

import pytest

from tests.support.apiserver import ApiServerProcess
from tests.support.load.raw_clients import Crowd, read_answer

GET = b"GET /version HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

AMBIGUOUS = {
    "two different lengths": POST + b"Content-Length: 0\r\nContent-Length: 37\r\n\r\n",
    "two equal lengths": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 0, 0\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length in hexadecimal": POST + b"Content-Length: 0x0\r\n\r\n",
    "a length with an underscore": POST + b"Content-Length: 0_0\r\n\r\n",
    "a length in foreign digits": POST + b"Content-Length: \xb2\r\n\r\n",
    "an empty length": POST + b"Content-Length:\r\n\r\n",
    "a length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked chunks": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "chunks in gzip": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "quoted chunks": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab before the colon": POST + b"Content-Length\t: 37\r\n\r\n",
    "underscores for dashes": POST + b"Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded first header": b"GET /version HTTP/1.1\r\n Host: x\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /api HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "line feeds alone": b"GET /version HTTP/1.1\nHost: x\n\n",
    "one line feed alone": GET + b"X-A: b\nContent-Length: 37\r\n\r\n",
    "a carriage return alone": GET + b"X-A: b\rContent-Length: 37\r\n\r\n",
    "a carriage return before the line's end": GET + b"X-A: b\r\r\n\r\n",
    "NUL in a value": GET + b"X-A: b\x00c\r\n\r\n",
    "a header without a colon": GET + b"Content-Length 37\r\n\r\n",
    "a header without a name": GET + b": x\r\n\r\n",
    "an empty line first": b"\r\n" + GET + b"\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "no host": b"GET /version HTTP/1.1\r\n\r\n",
    "no version": b"GET /version\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /version HTTP/0.9\r\nHost: x\r\n\r\n",
    "HTTP/2.0": b"GET /version HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/1.10": b"GET /version HTTP/1.10\r\nHost: x\r\n\r\n",
    "two spaces in the first line": b"GET  /version HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tab in the first line": b"GET\t/version HTTP/1.1\r\nHost: x\r\n\r\n",
    "a chunk's size in other digits": CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
    "a chunk's size with a sign": CHUNKED + b"+1\r\na\r\n0\r\n\r\n",
    "a chunk's size with a space": CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\n0\r\n\r\n",
    "a chunk's size that overflows": CHUNKED + b"f" * 17 + b"\r\na\r\n0\r\n\r\n",
    "a chunk's extension": CHUNKED + b"1;a=b\r\na\r\n0\r\n\r\n",
    "a chunk's extension with a line feed": CHUNKED + b"1;\n\r\na\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    "a chunk that ends in a line feed": CHUNKED + b"1\r\na\n0\r\n\r\n",
    "a size that ends in a line feed": CHUNKED + b"1\na\r\n0\r\n\r\n",
    "a trailer": CHUNKED + b"0\r\nContent-Length: 37\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_can_be_read_in_two_ways_is_400_and_closes(server: ApiServerProcess, case: str):
    with Crowd(server) as crowd:
        (sock,) = crowd.speaking(1, AMBIGUOUS[case] + SECOND)
        code, headers, body = read_answer(sock)
        assert (code, headers["connection"]) == (400, "close"), body
        assert json.loads(body)["reason"] == "BadRequest"
        assert read_answer(sock)[0] == 0, "what came after it was read as a request"


def test_a_head_without_end_is_431(server: ApiServerProcess):
    with Crowd(server) as crowd:
        (sock,) = crowd.speaking(1, GET + b"X-Long: " + b"a" * 100_000)
        assert read_answer(sock)[0] == 431


@pytest.mark.parametrize("length", ["Content-Length: 3145729", "Transfer-Encoding: chunked\r\n\r\n300001"])
def test_a_body_that_is_too_long_is_413_before_it_comes(server: ApiServerProcess, length: str):
    with Crowd(server) as crowd:
        (sock,) = crowd.speaking(1, POST + f"{length}\r\n\r\n".encode())
        code, headers, body = read_answer(sock)
        assert (code, headers["connection"]) == (413, "close")
        assert json.loads(body)["reason"] == "RequestEntityTooLarge"


def test_a_client_may_ask_before_it_sends_its_body(server: ApiServerProcess):
    body = b'{"metadata": {"name": "expected"}}'
    head = POST + b"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body)
    with Crowd(server, server.admin) as crowd:
        (sock,) = crowd.speaking(1, head)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_answer(sock)[0] == 201


def test_requests_sent_together_are_answered_one_after_another(server: ApiServerProcess):
    body = b'{"metadata": {"name": "together"}}'
    post = POST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    asked = [b"GET /api/v1/namespaces/together HTTP/1.1\r\nHost: x\r\n\r\n", post]
    with Crowd(server, server.admin) as crowd:
        (sock,) = crowd.speaking(1, b"".join([*asked, asked[0], CHUNKED, b"0\r\n\r\n", asked[0]]))
        file = sock.makefile("rb")
        codes = []
        for _ in range(5):
            codes.append(int(file.readline().split()[1]))
            length = 0
            while line := file.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            file.read(length)
        assert codes == [404, 201, 200, 400, 200]
