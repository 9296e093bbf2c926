"""A small OpenID Connect provider on the loopback: it knows one person and lets him in without asking."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

CODE, ACCESS = "a-code", "an-access-token"


@dataclass
class Provider:
    """Where it listens, whom it knows, and what it was asked."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    nonce: str = ""


@contextmanager
def serve(claims: dict[str, Any]) -> Iterator[Provider]:
    """Listen until the block ends."""
    provider = Provider(claims=claims)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            provider.asked.append((parts.path, query))
            if parts.path == "/.well-known/openid-configuration":
                self.answer(configuration(provider.url))
            elif parts.path == "/authorize":
                provider.nonce = query.get("nonce", [""])[0]
                given = urlencode({"code": CODE, "state": query["state"][0]})
                self.send_response(302)
                self.send_header("Location", f"{query['redirect_uri'][0]}?{given}")
                self.end_headers()
            elif parts.path == "/userinfo" and self.headers["Authorization"] == f"Bearer {ACCESS}":
                self.answer(provider.claims)
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            provider.asked.append((self.path, sent))
            if self.path != "/token" or sent.get("code") != [CODE] or not sent.get("code_verifier"):
                return self.send_error(400)
            now = int(time.time())
            told = {**provider.claims, "iss": provider.url, "aud": "kwit", "iat": now, "exp": now + 60}
            told |= {"nonce": provider.nonce} if provider.nonce else {}
            id_token = jwt.encode(told, "k" * 32, algorithm="HS256")
            return self.answer({"access_token": ACCESS, "token_type": "Bearer", "id_token": id_token})

        def answer(self, told: dict[str, Any]) -> None:
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


def configuration(url: str) -> dict[str, Any]:
    """Return what a provider says of itself."""
    return {
        "issuer": url,
        **{f"{name}_endpoint": f"{url}/{path}" for name, path in ENDPOINTS.items()},
        "jwks_uri": f"{url}/jwks",
        "response_types_supported": ["code"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }


ENDPOINTS = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
