"""A config from a file or from a mapping, whole and checked, or every fault of it at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from qtool.config.document import dotted, key_path
from qtool.config.extends import with_bases
from qtool.config.file import decoded, read_bytes
from qtool.config.mapping import document_from_mapping
from qtool.config.problems import problems_of
from qtool.config.schema import Config
from qtool.config.settings import with_settings
from qtool.config.source import parse_yaml
from qtool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.config.document import Document, KeyPath


def load_config(path: Path, settings: Sequence[str] = ()) -> Config:
    """Return the config in a YAML file, and in the files that it extends.

    Args:
        path: the file; messages name it as given, relative paths inside start from its folder.
        settings: texts `key=value` that replace what the file says, as `--set` gives them.

    Raises:
        ConfigError: the file cannot be read, or is no valid config; it states every fault with its place.

    Example:
        >>> load_config(Path("configs/resnet18-fbgemm.yaml"), ["target.isa=vnni"]).target
        TargetConfig(backend='fbgemm', isa=<Isa.VNNI: 'vnni'>)
    """
    base = path.absolute().parent
    document = parse_yaml(decoded(read_bytes(path, str(path)), str(path)), str(path))
    return _from_document(document, base, settings, path)


def parse_config(content: bytes, *, name: str, base: Path, settings: Sequence[str] = ()) -> Config:
    """Return the config in the bytes of a YAML file.

    Args:
        content: UTF-8, with or without byte order mark.
        name: what messages call the file.
        base: the folder that relative paths start from, that of `extends` too.
        settings: as `load_config`.

    Raises:
        ConfigError: as `load_config`.
    """
    return _from_document(parse_yaml(decoded(content, name), name), base, settings)


def _from_document(document: Document, base: Path, settings: Sequence[str], path: Path | None = None) -> Config:
    return _validated(with_settings(with_bases(document, base, path), settings), base)


def config_from_mapping(mapping: Mapping[str, object], where: str = "config") -> Config:
    """Return the config in a mapping of the same keys as a file has.

    `version` may be left out. Tuples and lists, paths and text, enums and their values are the same. Relative paths
    start from the current folder.

    Args:
        mapping: the config.
        where: what messages call it.

    Raises:
        ConfigError: it is no valid config; it states every fault with its key path.

    Example:
        >>> config_from_mapping({"target": {"backend": "qnnpack"}}).quantize.reduce_range
        <Reduce.AUTO: 'auto'>
    """
    _check_is_mapping(mapping, where)
    return _validated(document_from_mapping({"version": 1, **mapping}, where), Path.cwd())


def _check_is_mapping(found: object, where: str) -> None:
    if not isinstance(found, Mapping):
        kind = type(found).__name__
        raise ConfigError([f"{where}: found a value of type {kind}; allowed: a mapping, or the path of a config file"])


def changed(config: Config, changes: Mapping[str, object], where: str) -> Config:
    """Return the config with some keys set anew, validated again; it is located where the old one was.

    Args:
        config: the config.
        changes: new values by key path, such as `{"target.backend": "qnnpack"}`.
        where: what messages call the place of the new values, such as `--backend`.

    Raises:
        ConfigError: the result is no valid config.

    Example:
        >>> changed(config, {"target.backend": "qnnpack"}, "--backend").target.backend
        'qnnpack'
    """
    tree = config.model_dump(mode="json")
    for key, value in changes.items():
        _set(tree, key_path(key), value, where)
    result = _validated(document_from_mapping(tree, where), config.base)
    return result.with_origin(config.document, config.base)


def _validated(document: Document, base: Path) -> Config:
    """Return the config that a document holds; raise all problems of text, keys and values together."""
    problems = list(document.problems)
    try:
        # JSON, since pydantic's strict mode takes lists for tuples and text for enums there and only there.
        config = Config.model_validate_json(json.dumps(document.tree))
    except ValidationError as error:
        faulty = {problem.path for problem in problems if document.value(problem.path) is None}
        problems += [problem for problem in problems_of(error, document) if problem.path not in faulty]
        raise document.error(problems) from error
    if problems:
        raise document.error(problems)
    return config.with_origin(document, base)


def _set(tree: Any, path: KeyPath, value: object, where: str) -> None:  # noqa: ANN401 - JSON of any shape
    """Set the value at `path`, making the mappings above it where they are missing."""
    for number, part in enumerate(path):
        fits = isinstance(part, int) and part < len(tree) if isinstance(tree, list) else isinstance(tree, dict)
        if not fits:
            raise ConfigError([f"{where}: {dotted(path)}: found no {dotted(path[:number])} that has a {part}"])
        if number == len(path) - 1:
            tree[part] = value
        elif isinstance(tree, dict) and tree.get(part) is None:
            tree[part] = {}
        tree = tree[part]
