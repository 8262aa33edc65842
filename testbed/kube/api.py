"""The calls of the API that `kubectl` makes for jobs and pods."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from testbed.kube.cluster import Cluster

_JOBS = re.compile(r"/apis/batch/v1/namespaces/default/jobs(?:/([a-z0-9]+))?")
_PODS = "/api/v1/namespaces/default/pods"
_VERBS = ["create", "delete", "get", "list", "patch"]


def _resources(group: str, name: str, kind: str) -> dict[str, Any]:
    one = {
        "name": name,
        "singularName": name[:-1],
        "namespaced": True,
        "kind": kind,
        "verbs": _VERBS,
    }
    return {"kind": "APIResourceList", "groupVersion": group, "resources": [one]}


_BATCH = {"groupVersion": "batch/v1", "version": "v1"}
_DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList", "apiVersion": "v1",
        "groups": [{"name": "batch", "versions": [_BATCH], "preferredVersion": _BATCH}],
    },
    "/api/v1": _resources("v1", "pods", "Pod"),
    "/apis/batch/v1": _resources("batch/v1", "jobs", "Job"),
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0-box"},
}  # fmt: skip


class _Server(ThreadingHTTPServer):
    """Knows the cluster that it stands for."""

    daemon_threads = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster


class Box:
    """A server on a port of its own, with a file for `kubectl` that says where it is."""

    def __init__(self, folder: Path, cores: float = 4.0) -> None:
        """Get ready."""
        self.cluster = Cluster(cores)
        self._server = _Server(self.cluster)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.config = folder / "kubeconfig"
        self._folder = folder

    @property
    def env(self) -> dict[str, str]:
        """What `kubectl` needs to find it."""
        return {"KUBECONFIG": str(self.config), "KUBECACHEDIR": str(self._folder / "cache")}

    def __enter__(self) -> Self:
        """Serve."""
        place = f"http://127.0.0.1:{self._server.server_address[1]}"
        named = {"cluster": "box", "user": "box"}
        facts = {
            "apiVersion": "v1", "kind": "Config", "current-context": "box",
            "clusters": [{"name": "box", "cluster": {"server": place}}],
            "users": [{"name": "box", "user": {}}],
            "contexts": [{"name": "box", "context": named}],
        }  # fmt: skip
        self.config.write_text(json.dumps(facts))
        self.cluster.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and all that runs in it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.cluster.stop()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        labels = dict(
            one.split("=", 1)
            for one in parse_qs(at.query).get("labelSelector", [""])[0].split(",")
            if one
        )
        if at.path in _DISCOVERY:
            self._answer(_DISCOVERY[at.path])
        elif at.path == _PODS:
            self._list("PodList", "v1", self.server.cluster.list("pods", labels))
        elif not (found := _JOBS.fullmatch(at.path)):
            self._fail(404, "NotFound", f"the server could not find {at.path}")
        elif found[1] is None:
            self._list("JobList", "batch/v1", self.server.cluster.list("jobs", labels))
        else:
            self._job(found[1], self.server.cluster.find(found[1]))

    def do_POST(self) -> None:
        job = self._body()
        name = job["metadata"]["name"]
        made = self.server.cluster.create(job)
        if made is None:
            self._fail(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        else:
            self._answer(made, 201)

    def do_PATCH(self) -> None:
        changes = self._body()
        found = _JOBS.fullmatch(urlsplit(self.path).path)
        name = found[1] if found else ""
        self._job(name, self.server.cluster.patch(name, changes))

    def _job(self, name: str, found: dict[str, Any] | None) -> None:
        if found is None:
            self._fail(404, "NotFound", f'jobs.batch "{name}" not found')
        else:
            self._answer(found)

    def _list(self, kind: str, version: str, items: list[dict[str, Any]]) -> None:
        head = {"resourceVersion": "1"}
        self._answer({"kind": kind, "apiVersion": version, "metadata": head, "items": items})

    def _fail(self, code: int, reason: str, message: str) -> None:
        facts = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self._answer({**facts, "reason": reason, "message": message}, code)

    def _body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def _answer(self, data: dict[str, Any], code: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
