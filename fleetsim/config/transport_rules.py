"""Rules of `sync.transport` and `sync.link`: transports that cannot reach the engines, settings that nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetsim.config.link import LinkConfig
from fleetsim.config.sections import Sections
from fleetsim.errors import Problem


def _cuda_ipc_needs_the_same_gpus(s: Sections) -> Iterator[Problem]:
    if s.sync.transport == "cuda_ipc" and s.fleet.placement != "colocated":
        yield Problem(
            "sync.transport",
            "cuda_ipc",
            f"shares memory of one GPU, but the engines have GPUs of their own (fleet.placement {s.fleet.placement})",
            "use collective_broadcast or rdma_p2p, or fleet.placement: colocated",
        )


def _relays_serve_other_nodes(s: Sections) -> Iterator[Problem]:
    if s.sync.transport == "relay" and s.fleet.placement == "colocated":
        yield Problem(
            "sync.transport",
            "relay",
            "relay workers hold new weights for engines that go on meanwhile; colocated engines stand still anyway",
            "use cuda_ipc, or another fleet.placement",
        )


def _a_link_belongs_to_a_transport(s: Sections) -> Iterator[Problem]:
    link, unread = s.sync.link, LinkConfig()
    changed = [name for name in type(link).model_fields if getattr(link, name) != getattr(unread, name)]
    if s.sync.transport is None and changed:
        yield Problem(
            f"sync.link.{changed[0]}",
            getattr(link, changed[0]),
            "only a transport reads it, and sync.transport is not given",
            "give sync.transport, or drop sync.link (sync.link={})",
        )


def _storage_settings_need_storage(s: Sections) -> Iterator[Problem]:
    link, transport = s.sync.link, s.sync.transport
    if transport is None:
        return
    if link.delta_over == "storage" and transport != "sparse_delta":
        yield Problem(
            "sync.link.delta_over",
            "storage",
            f"only sparse_delta sends changes (sync.transport is {transport})",
            "use sync.transport: sparse_delta, or drop it",
        )
    elif link.prefetch and transport != "checkpoint_shuttle" and link.delta_over != "storage":
        yield Problem(
            "sync.link.prefetch",
            True,
            f"there is no shared storage to copy from (sync.transport is {transport})",
            "use checkpoint_shuttle, or sparse_delta with link.delta_over: storage",
        )


def _in_place_has_no_calls_per_tensor(s: Sections) -> Iterator[Problem]:
    link = s.sync.link
    if s.sync.transport is not None and link.load == "in_place" and link.calls == "per_tensor":
        yield Problem(
            "sync.link.calls",
            "per_tensor",
            "weights that land in place (link.load in_place) are not handed over tensor by tensor",
            "use link.calls: batched, or link.load: per_tensor",
        )


TRANSPORT_RULES: tuple[tuple[Callable[[Sections], Iterator[Problem]], tuple[str, ...]], ...] = (
    (_cuda_ipc_needs_the_same_gpus, ("sync.transport", "fleet.placement")),
    (_relays_serve_other_nodes, ("sync.transport", "fleet.placement")),
    (_a_link_belongs_to_a_transport, ("sync.transport", "sync.link")),
    (_storage_settings_need_storage, ("sync.transport", "sync.link.delta_over", "sync.link.prefetch")),
    (_in_place_has_no_calls_per_tensor, ("sync.transport", "sync.link.load", "sync.link.calls")),
)
