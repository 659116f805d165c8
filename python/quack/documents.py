"""YAML files that people write: read with their lines, so that every mistake can be shown."""

from __future__ import annotations

import pathlib
from typing import Any

import yaml
from pydantic import ValidationError

from quack.errors import ConfigError

__all__ = ["Document", "read_document"]

_FIXES = {
    "extra_forbidden": "unknown key; remove it or mend the spelling",
    "missing": "missing; add it",
}


def _line_index(node: yaml.Node | None, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Map every key path of a YAML document to its line, counted from 1."""
    lines: dict[tuple[str, ...], int] = {}
    if node is None:
        return lines
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            lines.update(_line_index(value, here))
            lines[here] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            lines.update(_line_index(value, (*path, str(position))))
    return lines


def _duplicate_keys(node: yaml.Node | None, path: str = "") -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = f"{path}{key.value}"
            if name in seen:
                found.append((key.start_mark.line + 1, f"{name}: given twice; keep one"))
            seen.add(name)
            found += _duplicate_keys(value, f"{name}.")
    return found


class Document:
    """What a file holds, and the mistakes found in it so far.

    Attributes:
        file: its path.
        content: as YAML has it; None for an empty file.
        problems: each with file, line, key and the fix.

    """

    def __init__(self, file: pathlib.Path, content: Any, lines: dict[tuple[str, ...], int]) -> None:
        self.file = file
        self.content = content
        self.problems: list[str] = []
        self._lines = lines

    def add(self, path: tuple[str, ...], message: str) -> None:
        """Note a mistake at a key, or at the nearest one above it that the file has."""
        line = self._lines.get(path)
        parent = path
        while line is None and parent:
            parent = parent[:-1]
            line = self._lines.get(parent)
        name = ".".join(path)
        self.problems.append(f"{self.file}:{line or 1}: {name + ': ' if name else ''}{message}")

    def add_all(self, error: ValidationError) -> None:
        """Note what a model found; what the file says is not repeated, it may be secret."""
        for item in error.errors(include_url=False, include_input=False, include_context=False):
            path = tuple(str(part) for part in item["loc"])
            self.add(path, _FIXES.get(item["type"], item["msg"]))


def read_document(file: pathlib.Path) -> Document:
    """Read a YAML file; keys that come twice are among its problems.

    Raises:
        ConfigError: it cannot be read, or is no YAML.

    """
    try:
        text = file.read_text()
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError([f"{file}:{line}: not valid YAML: {problem}"]) from error
    document = Document(file, content, _line_index(root))
    for line, message in _duplicate_keys(root):
        document.problems.append(f"{file}:{line}: {message}")
    return document
