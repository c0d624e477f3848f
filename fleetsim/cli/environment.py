"""The environment variables that fleetsim reads, in one list: for the reference and for whoever looks for a name."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES: Mapping[str, str] = {
    "FLEETSIM_<SECTION>__<FIELD>": "a value of the scenario, as `--set` would give it: FLEETSIM_FLEET__INSTANCES=12 is "
    "fleet.instances=12. Flags win over it, it wins over the file",
    "FLEETSIM_CACHE_DIR": "folder of the kernel's machine code; default XDG_CACHE_HOME/fleetsim or ~/.cache/fleetsim. "
    "Code is run from a folder that is yours alone, nobody else may write to it",
    "FLEETSIM_DEBUG": "anything: an internal error prints its traceback",
    "FLEETSIM_KERNEL": "checked: the kernel's build that checks every index of its tables, some times slower; to look "
    "for faults in fleetsim. Any other word is an error",
    "FLEETSIM_PROMETHEUS_TOKEN": "bearer token for Prometheus, where no file names one",
    "FLEETSIM_PROMETHEUS_USER": "user name for Prometheus, with FLEETSIM_PROMETHEUS_PASSWORD",
    "FLEETSIM_PROMETHEUS_PASSWORD": "password for Prometheus",
    "FLEETSIM_API_KEY": "bearer token of the server that `calibrate --url` measures",
    "OPENAI_API_KEY": "the same, only for a server that asks for a key when FLEETSIM_API_KEY is not set",
    "XDG_CACHE_HOME": "where FLEETSIM_CACHE_DIR is by default",
}
