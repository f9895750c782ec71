"""Calling Python that the user named in the config, so that its faults are told apart from ours."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from qtool.errors import DataError, QtoolError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def user_code(name: str, doing: str) -> Iterator[None]:
    """Run a block of user code with the current folder importable; what it raises becomes a DataError.

    Args:
        name: the `module:attribute` that the config names.
        doing: what the code was asked to do, as in "importing".

    Raises:
        DataError: the code raised, or tried to exit.
    """
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    except QtoolError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{name}: {doing} raised {_words(error)}. That is your code: run it alone to see where"
        raise DataError(msg) from error
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)


def _words(error: BaseException) -> str:
    """Return the error's type, and its message where it has one that can be read."""
    try:
        message = str(error)
    except Exception:  # the user's class may do anything
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def import_attribute(name: str, key: str = "factory") -> Any:  # noqa: ANN401
    """Return what `module:attribute` names; the module may lie in the current folder.

    Args:
        name: the module and the attribute.
        key: the key of the config that names it, for errors.

    Raises:
        DataError: there is no such module or attribute, or the import raises.

    Example:
        >>> import_attribute("math:gcd")(12, 18)
        6
    """
    module_name, _, attribute = name.partition(":")
    with user_code(name, f"importing {module_name}"):
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # it exists; something that it imports does not
            msg = f"{key}: {name!r}: there is no module {error.name!r}, neither installed nor in {Path.cwd()}"
            raise DataError(msg) from error
        found: Any = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                near = nearest(part, _public_names(found))
                msg = f"{key}: {name!r}: {module_name!r} has no attribute {part!r}{near}"
                raise DataError(msg)
            found = getattr(found, part)
    return found


def _public_names(owner: object) -> list[str]:
    """Return the public names that can be meant: not those of other modules, which it imports."""
    names = [name for name in dir(owner) if not name.startswith("_")]
    return [name for name in names if not isinstance(getattr(owner, name, None), ModuleType)]
