"""What every section of a config is: a frozen mapping that refuses unknown keys, and may know where it stands."""

from typing import Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

from qtool.config.document import Document, key_path


class Section(BaseModel):
    """A mapping of the config: frozen, strict, without unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)

    def model_copy(self, *, update: object = None, deep: bool = False) -> Self:
        """Return a copy; refuse changes, which pydantic would not validate.

        Raises:
            TypeError: `update` was given.
        """
        if update:
            msg = "model_copy(update=...) validates nothing; use qtool.config.load.changed"
            raise TypeError(msg)
        return super().model_copy(deep=deep)


class LocatedSection(Section):
    """A section that knows where its config came from; that is no part of its meaning."""

    _document: Document = PrivateAttr(default_factory=lambda: Document(name="config", tree={}))

    @property
    def document(self) -> Document:
        """What the config was read from."""
        return self._document

    def locate(self, key: str) -> str:
        """Return where a key of the whole config stands, for errors that show later.

        Example:
            >>> load_config(Path("configs/resnet18-fbgemm.yaml")).locate("target.backend")
            'configs/resnet18-fbgemm.yaml:11:19'
        """
        return self._document.locate(key_path(key))
