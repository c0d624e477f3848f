"""What all results can do: be read in a terminal and in a notebook, and be written down as the command's own JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from fleetsim.job.in_python import in_python

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from rich.console import RenderableType


class Result(ABC):
    """`str(result)` is the text that the command prints, `to_json()` what it prints under --json."""

    __slots__ = ()

    @abstractmethod
    def _view(self) -> RenderableType:
        """What the command prints."""

    @abstractmethod
    def _document(self) -> dict[str, Any]:
        """What the command prints under --json."""

    @abstractmethod
    def _page(self) -> str:
        """What the command writes under --html."""

    def __str__(self) -> str:
        from fleetsim.report.shown import as_text

        return as_text(self._view())

    def _repr_html_(self) -> str:
        from fleetsim.report.shown import as_html

        return as_html(self._view())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page of the command's --html: one file that opens offline. What it shows beyond the result is
        simulated for it. An existing file is replaced. Raises OutsideError without jinja2 and plotly, or where the file
        cannot be written.
        """
        from fleetsim.files import replace_file

        with in_python():
            page = self._page()
        return replace_file(path, page)

    def to_json(self) -> str:
        """The document of the command's --json: sorted keys, full precision, no time of day."""
        from fleetsim.report.json import dumps

        return dumps(self._document())

    def to_dict(self) -> dict[str, Any]:
        """The same document as Python values."""
        document: dict[str, Any] = json.loads(self.to_json())
        return document
