"""Docker's answers over HTTP, whole, in pieces, and cut."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.docker import Docker, DockerError

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
TWICE = "2;x=y\r\n[1\r\n4\r\n, 2]\r\n0\r\nTrailer: a\r\n\r\n"
WHOLE = {
    "of a length": HEAD + "Content-Length: 6\r\n\r\n[1, 2]",
    "in pieces": HEAD + "Transfer-Encoding: Chunked\r\n\r\n" + TWICE,
}
UNTIL_THE_END = {
    "until its end": HEAD + "\r\n[1, 2]",
    "of HTTP/1.0": "HTTP/1.0 200\r\nContent-Length: 6\r\n\r\n[1, 2]",
    "the last": HEAD + "Connection: close\r\nContent-Length: 6\r\n\r\n[1, 2]",
}
CUT = [
    "",
    "HTTP/1.1 200 OK",
    HEAD,
    HEAD + "Content-Length: 7\r\n\r\n[1, 2]",
    WHOLE["in pieces"][:-20],
    "no HTTP\r\n\r\n",
]


class Dockerd:
    """Answers each connection with the next of ``answers``, and tells what was asked."""

    def __init__(self, path: Path, *answers: list[str]) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answers in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                for answer in answers:
                    self.asked.append(connection.recv(65536))
                    connection.sendall(answer.encode())

    def close(self) -> None:
        """End it once all was asked."""
        self._thread.join(10)
        self._listener.close()


@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE)
def test_a_connection_takes_one_call_after_the_other(answer: str, tmp_path: Path) -> None:
    dockerd = Dockerd(tmp_path / "sock", [answer, "HTTP/1.1 204 No Content\r\n\r\n", answer])
    docker = Docker(str(tmp_path / "sock"))
    assert docker.call("GET", "/a", query={"b": "c d"}) == [1, 2]
    assert docker.call("POST", "/start") is None
    assert docker.call("POST", "/create", {"Image": "é"}) == [1, 2]
    docker.close()
    dockerd.close()
    assert dockerd.asked[0] == b"GET /a?b=c+d HTTP/1.1\r\nHost: docker\r\n\r\n"
    assert dockerd.asked[1] == b"POST /start HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n"
    body = b'{"Image": "\\u00e9"}'
    fields = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert dockerd.asked[2] == b"POST /create HTTP/1.1\r\nHost: docker\r\n" + fields + body


@pytest.mark.parametrize("answer", UNTIL_THE_END.values(), ids=UNTIL_THE_END)
def test_a_connection_that_ends_with_its_answer_takes_no_other_call(answer: str, tmp_path: Path) -> None:
    dockerd = Dockerd(tmp_path / "sock", [answer], [answer])
    docker = Docker(str(tmp_path / "sock"))
    assert [docker.call("POST", "/a"), docker.call("POST", "/a")] == [[1, 2], [1, 2]]
    dockerd.close()


@pytest.mark.parametrize("answer", CUT)
def test_an_answer_that_is_cut_is_none(answer: str, tmp_path: Path) -> None:
    dockerd = Dockerd(tmp_path / "sock", [answer])
    with pytest.raises(DockerError) as found:
        Docker(str(tmp_path / "sock")).call("POST", "/a")
    assert found.value.status == 0
    dockerd.close()


def test_a_connection_that_docker_closed_meanwhile_is_opened_again_for_what_may_be_repeated(tmp_path: Path) -> None:
    dockerd = Dockerd(tmp_path / "sock", [WHOLE["of a length"]], [WHOLE["of a length"]])
    docker = Docker(str(tmp_path / "sock"))
    assert [docker.call("GET", "/a"), docker.call("GET", "/a")] == [[1, 2], [1, 2]]
    docker.close()
    dockerd.close()


@pytest.mark.parametrize("path", ["/containers/a b", "/containers/a\r\nX: y", "/containers/é"])
def test_a_path_that_is_none_is_not_sent(path: str, tmp_path: Path) -> None:
    with pytest.raises(DockerError, match="cannot be asked"):
        Docker(str(tmp_path / "nobody")).call("DELETE", path)


def test_a_connection_that_docker_closed_for_its_idleness_is_not_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    first = Dockerd(path, [WHOLE["of a length"]])
    docker = Docker(str(path))
    docker.call("GET", "/a")
    first.close()
    path.unlink()
    second = Dockerd(path, [WHOLE["of a length"]])
    assert docker.call("POST", "/a", {"Image": "b"}) == [1, 2]
    docker.close()
    second.close()
