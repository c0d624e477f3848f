"""README as a package page shows it: links that work from there, to the repository that the release is made in.

Run by hatchling. Where no repository is known (GITHUB_REPOSITORY is not set), links stay as they are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^]]*\])\((?!https?:|#)([^)\s]+)\)")


class PackagePage(MetadataHookInterface):
    """Sets the project's page and its URLs."""

    PLUGIN_NAME = "package_page"

    def update(self, metadata: dict[str, Any]) -> None:
        """Puts them into the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        home = repository(os.environ)
        if home is not None:
            text = absolute(text, home, os.environ.get("GITHUB_REF_NAME", "main"))
            pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
            metadata["urls"] = {
                "Source": home,
                "Issues": f"{home}/issues",
                **{name: f"{home}/blob/main/{page}" for name, page in pages.items()},
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def repository(environ: Any) -> str | None:
    """The address of the repository that a release is made in, as its workflow tells it."""
    name = environ.get("GITHUB_REPOSITORY")
    return f"{environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else None


def absolute(text: str, home: str, ref: str) -> str:
    """The text with every link to a file of the repository as an address of that file at `ref`."""

    def put(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        return f"{picture}{words}({home}/{'raw' if picture else 'blob'}/{ref}/{target})"

    return _LINK.sub(put, text)
