"""Text from outside is text: what a terminal, a browser or an editor would act on is shown instead.

Names in scenarios, labels of Prometheus, file names, model names and lines of logs reach the terminal, pages, files and
error messages. Escape sequences in them would set the title, move the cursor or hide lines; marks of writing direction
would show one word and mean another. Every face writes its text through `visible`: `tell.console.console` for what rich
draws, `cli.output.say` for single lines, `errors` for messages, `tell.page.render` for pages, `tell.data.dumps` and
`config.yaml_text.to_yaml` for files.
"""

from __future__ import annotations

import re

# C0 without tab and line feed, DEL and C1; marks of direction; separators of lines; halves of a pair of code units.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    r"""The same text with each control character written out: "\x1b", "\u202e". Tabs and line feeds stay.

    >>> print(visible("job \x1b]0;owned\x07"))
    job \x1b]0;owned\x07
    """
    return CONTROL.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible_json(text: str) -> str:
    r"""The same for a JSON text, where "\u001b" is the one way to write it: what is read back is what was written."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
