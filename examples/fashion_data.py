"""Fashion-MNIST as tensors: from `make data`, from Debian's package, or else scikit-learn's digits in its place."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from qtool.config.schema import DigitsSource, FashionMnistSource, PreprocessConfig
from qtool.data.sources import open_source

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / ".data/usr/share/datasets/fashion-mnist", Path("/usr/share/datasets/fashion-mnist"))
PREPROCESS = PreprocessConfig(mean=(0.286,), std=(0.353,))  # mean and deviation of the 60 000 training pictures


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures (N, 1, H, W) and their classes (N,), in memory."""

    name: str
    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """Return their number."""
        return len(self.labels)


def load_pictures(split: str, limit: int | None = None) -> Pictures:
    """Return the first `limit` pictures of a split, `train` or `test`: 28x28 of clothes, or 8x8 of digits."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    if folder is None:
        looked = " and ".join(map(str, FOLDERS))
        print(f"NO FASHION-MNIST in {looked}: taking scikit-learn's digits. `make data` fetches it.", file=sys.stderr)
        name, source = "digits", DigitsSource(kind="digits", split=split, limit=limit, batch_size=1000)
    else:
        name, source = (
            "Fashion-MNIST",
            FashionMnistSource(
                kind="fashion_mnist",
                folder=str(folder),
                split=split,
                limit=limit,
                batch_size=1000,
                preprocess=PREPROCESS,
            ),
        )
    batches = list(open_source(source, inputs=(), base=ROOT).batches())
    return Pictures(
        name=name,
        images=torch.cat([batch.inputs[0] for batch in batches]),
        labels=torch.cat([batch.labels for batch in batches]),
    )
