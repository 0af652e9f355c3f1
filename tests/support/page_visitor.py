"""Application of the page over stores that a test fills, and an API server with a few users."""

import json
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from support.extender_objects import Stores
from tranche.auth.user_access import AUDIENCE
from tranche.kube.client.client import ApiError
from tranche.web.app import Planning, create_page_app

PEOPLE: dict[str, set[str]] = {
    "admin": {"list trainingjobs", "get trainingjobs", "list sites", "list /events"},
    "ann": {"list trainingjobs ns", "get trainingjobs ns", "list /events ns"},
    "eva": {"list trainingjobs ns", "get trainingjobs ns", "patch trainingjobs ns", "create trainingjobs ns"},
    "bob": {"list trainingjobs other", "get trainingjobs other"},
    "outsider": set(),
}
"""Users, whose tokens equal their names, and their rights; a right with a namespace holds only there."""


class Api:
    """Fake API server for reviews and events; the test sets `down` and reads `asked`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.down = False
        self.written: list[tuple[str, str, Any]] = []
        """Method, path and body of each write."""
        self.rejection: ApiError | None = None
        """Answer to writes."""
        self.audiences = [AUDIENCE]

    async def request(self, method: str, path: str, *, body: Any = None, **options: Any) -> dict[str, object]:
        if not path.endswith("reviews"):
            self.written.append((method, path, body))
            if self.rejection is not None:
                raise self.rejection
            return body if options.get("params", {}).get("dryRun") else {}
        self.asked.append(path.rpartition("/")[2])
        if self.down:
            raise ApiError(503, "Unavailable", "down")
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            known = spec["token"] in PEOPLE and spec.get("audiences", self.audiences) == self.audiences
            user = {"username": spec["token"], "groups": ["system:authenticated"]}
            audiences = spec.get("audiences", [])
            return {"status": {"authenticated": known, "audiences": audiences, "user": user} if known else {}}
        wanted = spec["resourceAttributes"]
        slash = "" if wanted["group"] else "/"
        request = f"{wanted['verb']} {slash}{wanted['resource']}"
        rights = PEOPLE[spec["user"]]
        return {"status": {"allowed": request in rights or f"{request} {wanted['namespace']}" in rights}}

    async def get(self, path: str, **params: str | int) -> bytes:
        self.asked.append(path)
        return json.dumps({"items": self.events}).encode()


class Visited:
    """Application, its stores, and a virtual clock."""

    def __init__(self, *nodes: str, planning: Planning | None = None, **options: Any) -> None:
        self.stores = Stores(nodes)
        self.api = Api()
        self.now = 0.0
        self.app = create_page_app(self.stores.view, self.stores, self.api, planning, lambda: self.now, **options)  # type: ignore[arg-type]
        self.http = TestClient(self.app)

    def ask(self, path: str, who: str = "admin", **headers: str) -> httpx2.Response:
        token = {"Authorization": f"Bearer {who}"} if who else {}
        return self.http.get(f"/v1/{path}", headers={**token, **headers})

    def send(self, path: str, body: Any, who: str = "eva", **headers: str) -> httpx2.Response:
        """Send a POST request as the page does; an empty header is left out."""
        usual = {"Authorization": f"Bearer {who}", "Tranche-Request": "page", "Content-Type": "application/json"}
        chosen = {name: value for name, value in (usual | headers).items() if value}
        return self.http.post(f"/v1/{path}", content=json.dumps(body), headers=chosen)

    def told(self, path: str, who: str = "admin") -> Any:
        response = self.ask(path, who)
        assert response.status_code == 200, response.text
        return response.json()
