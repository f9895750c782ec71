"""Paths in a config: relative to its folder, absolute, or inside an installed package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from qtool.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from qtool.config.document import Tree

PACKAGE_PREFIX = "package:"
_PATH_KEYS = frozenset({"checkpoint", "folder", "kwargs"})


def resolve_path(text: str, base: Path) -> Path:
    """Return the path that a config means; nothing needs to be there.

    Args:
        text: `w.pth` and `../data` start from `base`; `/data` is absolute; `package:NAME/inside` is below the folder
            of the installed package NAME, which is found without importing it.
        base: the folder of the config file, `config.base`.

    Raises:
        UsageError: a `package:` path has another form, or NAME is a single module.
        MissingDependencyError: no package NAME is installed.

    Example:
        >>> resolve_path("w.pth", Path("/home/ada")), resolve_path("package:foolbox/data", Path("/home/ada"))
        (PosixPath('/home/ada/w.pth'), PosixPath('/venv/lib/python3.11/site-packages/foolbox/data'))
    """
    if not text.startswith(PACKAGE_PREFIX):
        return base / text
    form = form_of_package_path(text)
    if form:
        msg = f"path {text!r} cannot be used. Write {form}."
        raise UsageError(msg)
    name, _, inside = text.removeprefix(PACKAGE_PREFIX).partition("/")
    candidates = [folder / inside for folder in _package_folders(name, text)]
    return next((path for path in candidates if path.exists()), candidates[0])


def form_of_package_path(text: str) -> str | None:
    """Return how a `package:` path must look where `text` does not; None where it does, or is no such path.

    Example:
        >>> form_of_package_path("package:../x")
        'package:NAME/path/inside, without ..'
    """
    if not text.startswith(PACKAGE_PREFIX):
        return None
    name, _, inside = text.removeprefix(PACKAGE_PREFIX).partition("/")
    path = PurePosixPath(inside)
    if name.isidentifier() and not path.is_absolute() and ".." not in path.parts:
        return None
    return "package:NAME/path/inside, without .."


def without_folders(tree: Tree, *, is_path: bool = False) -> Tree:
    """Return a config's tree with every absolute path cut to its last part, so that it tells nothing of the machine.

    Example:
        >>> without_folders({"checkpoint": "/home/ada/w.pth", "label": "/([0-9]+)"})
        {'checkpoint': 'w.pth', 'label': '/([0-9]+)'}
    """
    if isinstance(tree, dict):
        return {key: without_folders(value, is_path=is_path or key in _PATH_KEYS) for key, value in tree.items()}
    if isinstance(tree, list):
        return [without_folders(value, is_path=is_path) for value in tree]
    if is_path and isinstance(tree, str):
        for path in (PurePosixPath(tree), PureWindowsPath(tree)):
            if path.is_absolute():
                return path.name or tree
    return tree


def _package_folders(name: str, text: str) -> list[Path]:
    """Return the folders of an installed package: one, or several of a namespace package."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a module without a spec, such as __main__
        spec = None
    if spec is None:
        msg = f"package {name!r} of the path {text!r} is not installed. Install the distribution that brings it."
        raise MissingDependencyError(msg)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not folders:
        msg = f"path {text!r} cannot be used: {name!r} is a single module and has no folder."
        raise UsageError(msg)
    return folders
