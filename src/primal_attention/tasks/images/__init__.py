"""Images: CIFAR-10, folders in the layout of ImageNet-100, and scikit-learn's digits."""

from __future__ import annotations

from ..base import Task
from .data import ImageData, ImageReader, Look
from .recipes import CIFAR10, DIGITS, FOLDER
from .sets import ImageSet
from .task import Cifar10, Digits, Folder, ImageTask

__all__ = ["ImageData", "ImageReader", "ImageSet", "ImageTask", "Look", "image_tasks"]


def image_tasks() -> list[Task]:
    """All tasks of images."""
    return [
        Digits(
            "images/digits", "handwritten digits, with scikit-learn", DIGITS,
            size=8, patch=2, flip=False, facts="1437/360 images 8 x 8, 10 classes",
        ),
        Cifar10(
            "images/cifar10", "small photographs: CIFAR-10", CIFAR10,
            size=32, patch=4, facts="50000/10000 images 32 x 32, 10 classes",
        ),
        Folder(
            "images/folder", "photographs in folders, as ImageNet-100", FOLDER,
            size=224, patch=16, store=256, facts="a folder of images for every class",
            any_data=True,
        ),
    ]  # fmt: skip
