"""A CSI driver and its registrar as a program: grpcio and Google's protobuf, folders that are bound as volumes.

    python -m tests.support.servers.csi_driver NAME FOLDER

Its sockets are in kubelet's folders; the data of volume H is FOLDER/H. Each call becomes a line of FOLDER/calls. A call
fails that a file ``FOLDER/fail-METHOD`` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.waiting import nap

KUBELET = Path("/var/lib/kubelet")
ROOT = Path(__file__).resolve().parents[3]


class Sockets(NamedTuple):
    """Where a driver listens."""

    registrar: Path
    driver: Path

    @classmethod
    def of(cls, name: str) -> Sockets:
        """Return those of the driver ``name``."""
        return cls(KUBELET / "plugins_registry" / f"{name}-reg.sock", KUBELET / "plugins" / name / "csi.sock")


class Running:
    """A driver that runs."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.sockets = name, folder, Sockets.of(name)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Running:
        """Start it, and wait for its sockets."""
        argv = [sys.executable, "-m", __name__, self.name, str(self.folder)]
        self._process = subprocess.Popen(argv, cwd=ROOT)
        begun = time.monotonic()
        while not (self.folder / "ready").exists():
            assert self._process.poll() is None, "the driver ended"
            nap(begun)
        return self

    def stop(self) -> None:
        """End it; its sockets stay, as those of a driver that was killed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        (self.folder / "ready").unlink(missing_ok=True)

    def calls(self) -> list[dict[str, Any]]:
        """Return what it was asked since the last time, in order."""
        log = self.folder / "calls"
        found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    def close(self) -> None:
        """End it and remove its sockets."""
        self.stop()
        for socket in self.sockets:
            socket.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.sockets.driver.parent.rmdir()


@contextlib.contextmanager
def csi_driver(name: str, folder: Path) -> Iterator[Running]:
    """Run a driver."""
    running = Running(name, folder)
    try:
        yield running.start()
    finally:
        running.close()


def _messages() -> Any:
    """Return the module of the messages, compiled by protoc."""
    from grpc_tools import protoc  # noqa: PLC0415  (the program alone needs it)

    with tempfile.TemporaryDirectory() as folder:
        include = str(resources.files("grpc_tools") / "_proto")
        here = str(Path(__file__).parent)
        code = protoc.main(["protoc", f"-I{here}", f"-I{include}", f"--python_out={folder}", "csi_driver.proto"])
        assert code == 0
        sys.path.insert(0, folder)
        import csi_driver_pb2  # type: ignore[import-not-found]  # noqa: PLC0415

        return csi_driver_pb2


class _Driver:
    def __init__(self, name: str, folder: Path, messages: Any) -> None:
        self._name, self._folder, self._messages = name, folder, messages

    def answer(self, method: str, request: Any, context: Any) -> Any:
        """Note the call, act, and return its answer."""
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415

        result = MessageToDict(request, preserving_proto_field_name=True)
        with (self._folder / "calls").open("a") as log:
            log.write(json.dumps({"method": method, **result}) + "\n")
        if (self._folder / f"fail-{method}").exists():
            import grpc  # noqa: PLC0415

            context.abort(grpc.StatusCode.INTERNAL, f"{method} is to fail")
        return getattr(self, f"_{method}")(request)

    def _GetInfo(self, _request: Any) -> Any:  # noqa: N802  (names of the protocol)
        endpoint = str(Sockets.of(self._name).driver)
        return self._messages.PluginInfo(type="CSIPlugin", name=self._name, endpoint=endpoint)

    def _NotifyRegistrationStatus(self, _request: Any) -> Any:  # noqa: N802
        return self._messages.RegistrationStatusResponse()

    def _NodeGetInfo(self, _request: Any) -> Any:  # noqa: N802
        topology = self._messages.Topology(segments={f"{self._name}/zone": "east"})
        return self._messages.NodeGetInfoResponse(node_id="i-1", max_volumes_per_node=3, accessible_topology=topology)

    def _NodeGetCapabilities(self, _request: Any) -> Any:  # noqa: N802
        row, response = self._messages.NodeServiceCapability, self._messages.NodeGetCapabilitiesResponse
        return response(capabilities=[row(rpc=row.RPC(type=one)) for one in (1, 2, 3)])

    def _NodeStageVolume(self, request: Any) -> Any:  # noqa: N802
        data = self._folder / request.volume_id
        data.mkdir(exist_ok=True)
        _bind(str(data), request.staging_target_path)
        return self._messages.NodeStageVolumeResponse()

    def _NodePublishVolume(self, request: Any) -> Any:  # noqa: N802
        Path(request.target_path).mkdir(parents=True, exist_ok=True)
        source = request.staging_target_path
        if not source:
            source = str(self._folder / request.volume_id)
            Path(source).mkdir(exist_ok=True)
        _bind(source, request.target_path)
        return self._messages.NodePublishVolumeResponse()

    def _NodeUnpublishVolume(self, request: Any) -> Any:  # noqa: N802
        _unbind(request.target_path)
        with contextlib.suppress(FileNotFoundError):
            Path(request.target_path).rmdir()
        return self._messages.NodeUnpublishVolumeResponse()

    def _NodeUnstageVolume(self, request: Any) -> Any:  # noqa: N802
        _unbind(request.staging_target_path)
        return self._messages.NodeUnstageVolumeResponse()

    def _NodeExpandVolume(self, request: Any) -> Any:  # noqa: N802
        return self._messages.NodeExpandVolumeResponse(capacity_bytes=request.capacity_range.required_bytes)

    def _NodeGetVolumeStats(self, request: Any) -> Any:  # noqa: N802
        assert Path(request.volume_path).is_dir()
        bytes_, inodes = ({"total": 100, "used": 60, "available": 40, "unit": 1}, {"total": 9, "used": 9, "unit": 2})
        rows = [self._messages.VolumeUsage(**row) for row in (bytes_, inodes)]
        return self._messages.NodeGetVolumeStatsResponse(usage=rows)


def _bind(source: str, target: str) -> None:
    if not os.path.ismount(target) and target not in Path("/proc/self/mountinfo").read_text():
        subprocess.run(("mount", "--bind", source, target), check=True)


def _unbind(target: str) -> None:
    while f" {target} " in Path("/proc/self/mountinfo").read_text():
        subprocess.run(("umount", target), check=True)


_METHODS = {
    "pluginregistration.Registration": {"GetInfo": "InfoRequest", "NotifyRegistrationStatus": "RegistrationStatus"},
    "csi.v1.Node": {
        name: f"{name}Request"
        for name in (
            "NodeGetInfo", "NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
            "NodeUnstageVolume", "NodeExpandVolume", "NodeGetVolumeStats",
        )
    },
}  # fmt: skip


def _serve(name: str, folder: Path) -> None:
    import grpc  # noqa: PLC0415

    messages = _messages()
    driver = _Driver(name, folder, messages)

    def handler(method: str, request: str) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda asked, context: driver.answer(method, asked, context),
            request_deserializer=getattr(messages, request).FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    servers = []
    for socket, (service, methods) in zip(Sockets.of(name), _METHODS.items(), strict=True):
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {method: handler(method, request) for method, request in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        servers.append(server)
    (folder / "ready").touch()
    for server in servers:
        server.wait_for_termination()


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
