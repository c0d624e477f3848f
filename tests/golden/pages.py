"""A page as text: its words, and what its charts show."""

from __future__ import annotations

from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "template"})
_INLINE = frozenset({"a", "b", "code", "em", "i", "small", "span", "strong", "sub", "sup", "tspan"})
_CELLS = frozenset({"td", "th"})
_TOLD = ("aria-label", "alt", "title", "data-of")


class _Words(HTMLParser):
    """Visible text, a block a line, cells of a row side by side; of drawings their words, and how many parts they
    have."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._line = ""
        self._unseen: list[str] = []
        self._parts = 0
        self._drawings = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in _UNSEEN:
            self._unseen.append(tag)
            return
        if tag == "svg":
            if not self._drawings:
                self._end()
            self._drawings += 1
        if self._drawings:
            self._parts += 1
            return
        if tag in _CELLS:
            self._line += " | "
        elif tag not in _INLINE:
            self._end()
        for name in _TOLD:
            if said.get(name):
                self._line += f"[{name}: {said[name]}] "

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen.remove(tag)
        elif self._drawings:
            self._line += "; " if tag in ("text", "title") else ""
            self._drawings -= tag == "svg"
            if not self._drawings:
                self._drawing()
        elif tag not in _INLINE and tag not in _CELLS:
            self._end()

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._line += data

    def _end(self) -> None:
        line = " ".join(self._line.split(" "))
        line = " ".join(line.replace("\n", " ").split(" ")).strip()
        while "  " in line:
            line = line.replace("  ", " ")
        if line:
            self.lines.append(line)
        self._line = ""

    def _drawing(self) -> None:
        """One line of a drawing: its first and last words, and how much of it there is."""
        words = [word for word in self._line.strip().split("; ") if word]
        shown = words if len(words) <= 24 else [*words[:12], "...", *words[-12:]]
        self._line = f"[drawn: {self._parts} parts] {'; '.join(shown)}" if words else ""
        self._parts = 0
        self._end()


def page_text(html: str) -> str:
    """The words of the page and of its drawings."""
    parser = _Words()
    parser.feed(html)
    parser.close()
    return "\n".join(parser.lines)
