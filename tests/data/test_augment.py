import pytest
import torch
from PIL import Image
from torchvision import transforms

from qtool.config.augment import AugmentConfig, RandomCropConfig, RandomResizedCropConfig
from qtool.config.schema import ImageFolderSource, InputConfig, PhotosSource, PreprocessConfig
from qtool.data.draws import drawing_from
from qtool.data.imagefolder import open_imagefolder
from qtool.data.photos import open_photos
from qtool.data.preprocess import Preprocess
from qtool.errors import DataError
from tests.data.test_preprocess import gradient

SETTINGS = PreprocessConfig(resize=40, interpolation="bicubic", crop=32, mean=(0.5,), std=(0.25,))
LAST = [transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))]
RESIZE = transforms.Resize(40, transforms.InterpolationMode.BICUBIC)


def made(augment, picture, *draw):
    with drawing_from(*draw):
        return Preprocess(settings=SETTINGS, num_channels=3, augment=augment)(picture, "p.png")


@pytest.mark.parametrize(
    ("augment", "steps"),
    [
        (AugmentConfig(flip=True), [RESIZE, transforms.CenterCrop(32), transforms.RandomHorizontalFlip()]),
        (AugmentConfig(random_crop=RandomCropConfig(size=32)), [RESIZE, transforms.RandomCrop(32)]),
        (
            AugmentConfig(random_crop=RandomCropConfig(size=38, padding=5), flip=True),
            [RESIZE, transforms.RandomCrop(38, padding=5), transforms.RandomHorizontalFlip()],
        ),
        (
            AugmentConfig(random_resized_crop=RandomResizedCropConfig(size=24, scale=(0.3, 0.6)), flip=True),
            [
                transforms.RandomResizedCrop(24, (0.3, 0.6), interpolation=transforms.InterpolationMode.BICUBIC),
                transforms.RandomHorizontalFlip(),
            ],
        ),
    ],
    ids=["flip", "crop", "padded crop", "resized crop"],
)
def test_it_is_what_torchvision_does(augment, steps):
    picture = gradient(100, 73)
    results = []
    for sample in range(6):
        result = made(augment, picture, 0, sample)
        with drawing_from(0, sample):
            assert torch.equal(result, transforms.Compose([*steps, *LAST])(picture))
        assert torch.equal(result, made(augment, picture, 0, sample))
        results.append(result)
    assert any(not torch.equal(results[0], other) for other in results)


def test_about_half_of_the_pictures_are_mirrored():
    picture = gradient(50, 50)
    plain = made(AugmentConfig(), picture, 0)
    same = sum(torch.equal(made(AugmentConfig(flip=True), picture, 0, n), plain) for n in range(100))
    mirrored = sum(torch.equal(made(AugmentConfig(flip=True), picture, 0, n).flip(2), plain) for n in range(100))
    assert same + mirrored == 100
    assert 30 < same < 70  # 50 +- 4 deviations of 5


def test_a_picture_too_small_for_its_crop_is_refused():
    augment = AugmentConfig(random_crop=RandomCropConfig(size=32, padding=4))
    preprocess = Preprocess(settings=PreprocessConfig(), num_channels=3, augment=augment)
    message = r"p\.png: is 30x23, too small for a random_crop of 32 with padding 4: set preprocess\.resize, or more"
    with pytest.raises(DataError, match=message):
        preprocess(Image.new("RGB", (30, 23)), "p.png")
    assert preprocess(Image.new("RGB", (30, 24)), "p.png").shape == (3, 32, 32)


def test_sources_of_pictures_hand_it_on(tmp_path):
    (tmp_path / "a").mkdir()
    gradient(20, 20).save(tmp_path / "a" / "p.png")
    inputs = (InputConfig(name="x", shape=("batch", 3, 8, 8)),)
    augment = AugmentConfig(random_resized_crop=RandomResizedCropConfig(size=8))
    folder = open_imagefolder(
        ImageFolderSource(kind="imagefolder", folder=str(tmp_path), augment=augment), inputs, tmp_path
    )
    photos = open_photos(
        PhotosSource(kind="photos", folder=str(tmp_path / "a"), glob="*.png", augment=augment), inputs, tmp_path
    )
    assert folder[0].inputs[0].shape == photos[0].inputs[0].shape == (3, 8, 8)
