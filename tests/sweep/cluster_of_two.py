"""A Ray cluster of two nodes with a core each, until its standard input ends: prints its address.

It listens on the loopback address alone. LOOPBACK has to be in the environment of the driver too: without it, Ray takes
127.0.0.1 for this machine's address on its network.
"""

from __future__ import annotations

import os
import sys

# Ray's name for it is of its time; what it decides on any system is the address that nodes and drivers stand at.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def main() -> None:
    os.environ.update(LOOPBACK)
    from ray.cluster_utils import Cluster  # it reads the environment when it is imported

    node = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        print("at", cluster.address, flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
