"""The connections of one session, which another thread can cut off."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from requests.adapters import HTTPAdapter


class Connections(HTTPAdapter):
    """Knows the sockets that it has opened: a socket's own patience begins anew with every byte that comes."""

    def __init__(self) -> None:
        self._opened: WeakSet[socket.socket] = WeakSet()
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **named: Any) -> None:
        """The pools of direct connections."""
        super().init_poolmanager(*args, **named)
        self._known(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """The pools of connections through a proxy."""
        return self._known(super().proxy_manager_for(proxy, **named))

    def cut(self) -> None:
        """Ends whatever is read or written now."""
        for one in list(self._opened):
            with suppress(OSError, TypeError):  # it is closed, or no socket of the system
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def _known(self, manager: Any) -> Any:
        kinds = {scheme: self._remembering(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}
        manager.pool_classes_by_scheme = kinds
        return manager

    def _remembering(self, pool: Any) -> Any:
        opened = self._opened

        class Connection(pool.ConnectionCls):
            def connect(self) -> None:
                super().connect()
                opened.add(self.sock)

        return type(pool.__name__, (pool,), {"ConnectionCls": Connection})
