"""Where the server is: one way to write its URL, and the key that goes to it alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleetsim.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class Address:
    """root: scheme, host, port and path prefix, without a trailing slash or /v1."""

    root: str

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return self.root

    def v1(self, path: str) -> str:
        """An endpoint of the OpenAI interface."""
        return f"{self.root}/v1/{path}"

    def own(self, path: str) -> str:
        """An endpoint of the server's own, beside /v1."""
        return f"{self.root}/{path}"


def address_of(url: str) -> Address:
    """The server's address, with and without /v1, a doubled /v1, or a whole endpoint such as /v1/completions.

    Raises InputError for another scheme, a missing host, or credentials in the URL.
    """

    def refuse(value: str, rule: str, remedy: str) -> InputError:
        return InputError([Problem("--url", value, rule, remedy)])

    text = url.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise refuse(text, f"is no URL: {error}", "for example http://localhost:8000") from None
    if parts.username is not None or parts.password is not None:
        raise refuse(f"{parts.scheme}://...@{host}", "holds credentials", "give a key with --api-key instead")
    if parts.scheme not in ("http", "https"):
        raise refuse(text, "only http and https", f"http://{text}" if "//" not in text else "http://localhost:8000")
    if not host or any(c.isspace() or not c.isprintable() for c in text):
        raise refuse(text, "names no host", "for example http://localhost:8000")
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(ending)
    while path.endswith("/v1"):
        path = path.removesuffix("/v1").rstrip("/")
    named = f"[{host}]" if ":" in host else host
    return Address(f"{parts.scheme}://{named}{f':{port}' if port is not None else ''}{path}")


@dataclass(slots=True)
class Key:
    """The bearer token. spare: what is tried only when the server asks for one, so that it goes nowhere unasked."""

    token: str | None
    spare: str | None

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def hide(self, text: str) -> str:
        """The text without the keys: a server may quote what it was sent."""
        for key in (self.token, self.spare):
            text = text.replace(key, "***") if key else text
        return text

    def use_spare(self) -> bool:
        """Takes the spare key after a 401. Returns whether there was one."""
        if self.token or not self.spare:
            return False
        self.token, self.spare = self.spare, None
        return True


def key_of(api_key: str | None) -> Key:
    """The user's key: the flag, else FLEETSIM_API_KEY; OPENAI_API_KEY only for a server that asks for one.

    Raises InputError for a key that cannot stand in a header.
    """
    token = (api_key or os.environ.get("FLEETSIM_API_KEY") or "").strip()
    spare = (os.environ.get("OPENAI_API_KEY") or "").strip()
    for name, value in (("--api-key", token), ("OPENAI_API_KEY", spare)):
        if any(not 32 < ord(c) < 127 for c in value):
            raise InputError([Problem(name, "(not shown)", "printable ASCII without spaces", "check the key")])
    return Key(token or None, spare or None)
