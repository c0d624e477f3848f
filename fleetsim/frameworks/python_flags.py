"""Flags that a Python script puts together as text, and hands to the program that it starts: slime's and Miles'.

    rollout_args = f"--rollout-batch-size 32 --rollout-max-response-len {length} "
    U.execute_train(train_args=f"{ckpt_args} {rollout_args}", train_script="train_async.py")

The script is parsed, never run: read are texts that a function always makes. A part that is computed is what the shell
alone would know, and a flag that a condition decides is lost.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

_STARTS, _ARGS, _SCRIPT = "execute_train", "train_args", "train_script"
_COMPUTED = "$(computed)"
_END = re.compile(r"[^\s]*\$\(computed\)(?:(?!--)[^/\s])*(?:/?(?=\s|\Z)|(?=--))")
_FLAG = re.compile(r"--([\w.-]+)")
_BEFORE, _AFTER = re.compile(r"(--[\w.-]+ *|\S)\Z"), re.compile(r"(?!--)\S")
_Texts = dict[str, str]


def flags_of(text: str) -> tuple[str, list[str]]:
    """The command that a script starts, and the flags that a condition decides; an empty one where it starts none."""
    if f"{_STARTS}(" not in text:
        return "", []
    with warnings.catch_warnings(action="ignore"):
        module = ast.parse(text)
    try:
        return _command(module)
    except RecursionError:  # a sum of more texts than any script has
        return "", []


def _command(module: ast.Module) -> tuple[str, list[str]]:
    known, lost = dict(_known(module)), list[str]()
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        texts, lost = dict(known), []
        for statement in function.body:
            _follow(statement, texts, lost)
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(_STARTS):
                given = {word.arg: _text(word.value, texts, lost) for word in call.keywords}
                # Of a path whose end is computed nothing is known.
                words = _END.sub(f" {_COMPUTED} ", given.get(_ARGS, ""))
                return f"python3 {given.get(_SCRIPT, 'train.py')} {words}", lost
    return "", []


def _known(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Constants of the module, flags of its functions, and defaults of its classes, as `.name`, that nothing sets."""
    names = (node for node in ast.walk(module) if isinstance(node, ast.Attribute))
    anew = {node.attr for node in names if isinstance(node.ctx, ast.Store)}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield f"{node.name}()", " ".join(f"--{flag}" for flag in _flags(node))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield ast.unparse(node.targets[0]), str(node.value.value)
        for field in node.body if isinstance(node, ast.ClassDef) else ():
            default = field.value if isinstance(field, ast.AnnAssign) else None
            if isinstance(default, ast.Constant) and default.value is not None:
                name = ast.unparse(field.target) if isinstance(field, ast.AnnAssign) else ""
                yield from [(f".{name}", str(default.value))] if name not in anew else []


def _follow(statement: ast.stmt, texts: _Texts, lost: list[str]) -> None:
    """What a statement puts together; below a condition, its flags are lost."""
    if isinstance(statement, (ast.Assign, ast.AugAssign)):
        target = statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0]
        if isinstance(target, ast.Name):
            new, before = _text(statement.value, texts, lost), texts.get(target.id, "")
            texts[target.id] = _joined((before, new)) if isinstance(statement, ast.AugAssign) else new
    elif not isinstance(statement, ast.Expr):
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                texts[node.targets[0].id] = _COMPUTED
        lost += _flags(statement)


def _text(node: ast.expr, texts: _Texts, lost: list[str]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        return _joined([_text(part, texts, lost) for part in parts])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([_text(part, texts, lost) for part in (node.left, node.right)])
    lost += _flags(node)
    for call in (part.func for part in ast.walk(node) if isinstance(part, ast.Call)):
        lost += _FLAG.findall(texts.get(f"{ast.unparse(call)}()", ""))
    name = f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return texts.get(name, _COMPUTED)


def _joined(pieces: Sequence[str]) -> str:
    """Pieces of one text. A computed one that has no flag before it, and is no part of a word, has flags of its own."""
    text = ""
    for before, piece, after in zip(("", *pieces), pieces, (*pieces[1:], ""), strict=False):
        text += piece if piece != _COMPUTED or _BEFORE.search(before) or _AFTER.match(after) else ""
    return text


def _flags(node: ast.AST) -> list[str]:
    """The flags in all texts below a node."""
    found = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return [flag for text in found for flag in _FLAG.findall(text)]
