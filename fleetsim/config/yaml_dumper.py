"""Plain values as YAML that reads back equal: laws and lists of scalars on one line, no anchors, quotes if needed."""

from __future__ import annotations

from typing import Any

import yaml

from fleetsim.config.plain_scalar import plain_scalar


def dumped(value: Any) -> str:
    """The YAML of a value; its keys keep their order."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return text


class _Dumper(yaml.SafeDumper):
    """SafeDumper that writes no anchors and quotes every string that would read back as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = isinstance(plain_scalar(text), str) and text.isprintable()  # else a line break could be folded away
    lines = text.split("\n")
    block = len(lines) > 1 and all(line.isprintable() and line.strip(" ") == line != "" for line in lines)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "|" if block else '"')


def _mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    return dumper.represent_mapping(
        "tag:yaml.org,2002:map", mapping, flow_style="kind" in mapping and "name" not in mapping
    )


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    scalars = not any(isinstance(item, (dict, list)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=scalars)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _list)
