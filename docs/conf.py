"""The documentation as a site: `pip install -e '.[docs]'`, then

    sphinx-build -W --keep-going -n docs docs/_build/html

Pages are Markdown that reads as well in a file viewer. Nothing in the built site asks another host for anything:
equations become MathML here, fonts are the system's.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers.shell import BashSessionLexer
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

import fleetsim

project = "fleetsim"
author = "The fleetsim maintainers"
copyright = "The fleetsim maintainers"  # noqa: A001 - Sphinx's name for it
version = release = fleetsim.__version__

extensions = ["myst_nb", "sphinx_copybutton"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False  # or the two dashes of a flag become one long one

myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# The notebook is run by the build, in a folder of its own; an error in it is an error of the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

html_theme = "furo"
html_title = f"fleetsim {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

# What a reader copies from a `console` block is its commands.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_exclude = ".linenos, .gp, .go"


class Console(BashSessionLexer):
    """Commands begin with "$ " and nothing else does: a line of output that begins with "% " is output."""

    _ps1rgx = re.compile(r"^(\$ )(.*\n?)")
    _ps2 = "\0"


def _mathml(node: nodes.Node, *, as_block: bool) -> str:
    """The equation; what cannot be converted is a warning that says where it is, and shown as it is written."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("an equation: %s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="equation">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Equations as MathML, which browsers draw by themselves; prompts as the pages write them."""
    app.add_lexer("console", Console)
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
