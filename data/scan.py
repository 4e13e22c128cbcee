"""Finds the images of a folder of class folders, <folder>/<class>/<image>, and reports what else lies there.

Class folders and images may be links. Whatever starts with a dot and files without an image suffix are no
images. Images deeper than a class folder are an error: no choice of class for them would be right for
everybody.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_only

from data.checks import did_you_mean
from data.images import IMAGE_SUFFIXES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FolderIndex:
    """The images of one split.

    Args:
        folder: holds the class folders.
        class_names: names of the class folders; their order gives the class ids.
        file_names: (images,), bytes; one array, because of a list of strings every worker would get a copy.
        targets: (images,), class ids.
    """

    folder: Path
    class_names: list[str]
    file_names: np.ndarray
    targets: np.ndarray

    def path(self, index: int) -> str:
        """Return the path of image number `index`."""
        name = os.fsdecode(bytes(self.file_names[index]))
        return os.path.join(self.folder, self.class_names[self.targets[index]], name)


@dataclass
class Findings:
    """What a scan met beside images in class folders, as paths relative to the scanned folder."""

    dotted: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    suffixes: Counter[str] = field(default_factory=Counter)

    def ignored(self) -> str:
        """Say what was ignored, for a warning; empty when there is nothing to say."""
        parts = [
            (self.dotted, "whose names start with a dot"),
            (self.loops, "that link back to a folder above"),
            (self.broken, "that link to nothing"),
            (self.stray, "that lie beside the class folders"),
        ]
        return "; ".join(f"{len(paths)} {what} ({shortened(paths)})" for paths, what in parts if paths)


def scan_folder(folder: Path, *, what: str, train_classes: list[str] | None = None) -> FolderIndex:
    """Index the images of a folder of class folders.

    Args:
        folder: an existing folder.
        what: the config key that names the folder, for messages.
        train_classes: the classes of training, which a validation folder has to keep to; None takes its own.

    Raises:
        ValueError: no class folders, no images, images below class folders, or a class that training lacks.
    """
    findings = Findings()
    images: dict[str, list[str]] = {}
    for entry in _entries(folder, "", findings):
        if not entry.is_dir():
            if _is_image(entry.name):
                findings.stray.append(entry.name)
            findings.suffixes[_suffix(entry.name)] += 1
        elif _leads_back(entry.path):
            findings.loops.append(entry.name)
        else:
            images[entry.name] = _scan_class(entry, findings)
    _check_layout(folder, what, images, findings)
    if train_classes is not None:
        _check_classes(folder, what, images, train_classes)
    class_names = train_classes or sorted(images)
    _warn(folder, what, [name for name in class_names if not images.get(name)], findings)
    files = [sorted(images.get(name, [])) for name in class_names]
    return FolderIndex(
        folder=folder,
        class_names=class_names,
        file_names=np.array([os.fsencode(name) for names in files for name in names]),
        targets=np.repeat(np.arange(len(files), dtype=np.int64), [len(names) for names in files]),
    )


def shortened(names: Iterable[str], limit: int = 5) -> str:
    """List a few names of many."""
    listed = list(names)
    return ", ".join(listed[:limit]) + (f" and {len(listed) - limit} more" if len(listed) > limit else "")


def _entries(folder: str | Path, prefix: str, findings: Findings) -> list[os.DirEntry[str]]:
    """List files and folders, without dot names and dead links, which go to the findings."""
    kept = []
    with os.scandir(folder) as scan:
        for entry in sorted(scan, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                # Dot files that could pass for images, and folders; a .DS_Store is not worth a word.
                if _is_image(entry.name) or entry.is_dir():
                    findings.dotted.append(prefix + entry.name)
            elif entry.is_symlink() and not os.path.exists(entry.path):
                findings.broken.append(prefix + entry.name)
            else:
                kept.append(entry)
    return kept


def _scan_class(class_entry: os.DirEntry[str], findings: Findings) -> list[str]:
    """Return the names of the images in a class folder."""
    names = []
    prefix = class_entry.name + "/"
    for entry in _entries(class_entry.path, prefix, findings):
        if entry.is_dir():
            if _leads_back(entry.path):
                findings.loops.append(prefix + entry.name)
            elif _holds_images(entry.path):
                findings.nested.append(prefix + entry.name)
        elif _is_image(entry.name):
            names.append(entry.name)
        else:
            findings.suffixes[_suffix(entry.name)] += 1
    return names


def _holds_images(folder: str) -> bool:
    """Say whether there is an image anywhere below; links are followed, each folder is visited once."""
    seen: set[str] = set()
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        if real in seen or _leads_back(folder):
            continue
        seen.add(real)
        with os.scandir(folder) as scan:
            for entry in scan:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    waiting.append(entry.path)
                elif _is_image(entry.name):
                    return True
    return False


def _leads_back(folder: str) -> bool:
    """Say whether a folder is a link to itself or to a folder that it lies in."""
    if not os.path.islink(folder):
        return False
    above = os.path.realpath(os.path.dirname(folder))
    return os.path.commonpath([above, os.path.realpath(folder)]) == os.path.realpath(folder)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _is_image(name: str) -> bool:
    return _suffix(name) in IMAGE_SUFFIXES


def _check_layout(folder: Path, what: str, images: dict[str, list[str]], findings: Findings) -> None:
    if findings.nested:
        raise ValueError(
            f"{what} ({folder}) must hold images directly in its class folders; there are images deeper, in"
            f" {shortened(findings.nested)}: move them up, or name the folder above the real class folders"
        )
    if not images and findings.stray:
        raise ValueError(
            f"{what} ({folder}) must hold one folder per class; its {len(findings.stray)} images lie directly"
            f" in it ({shortened(findings.stray, 3)}): move each into a folder named for its class"
        )
    if not any(images.values()):
        seen = ", ".join(
            f"{suffix or 'none'} ({count})" for suffix, count in sorted(findings.suffixes.items())
        )
        raise ValueError(
            f"{what} ({folder}) must hold images in class folders; found 0 images in {len(images)} class"
            f" folders; suffixes seen: {seen or 'no files'}; suffixes read: {', '.join(IMAGE_SUFFIXES)}"
        )


def _check_classes(folder: Path, what: str, images: dict[str, list[str]], train_classes: list[str]) -> None:
    unknown = sorted(set(images) - set(train_classes))
    if unknown:
        raise ValueError(
            f"{what} ({folder}) must have no class that training lacks, but has"
            f" {shortened(map(repr, unknown))}; training has {shortened(map(repr, train_classes), 10)}"
            f"{did_you_mean(unknown[0], train_classes)}"
        )


@rank_zero_only
def _warn(folder: Path, what: str, empty: list[str], findings: Findings) -> None:
    if findings.ignored():
        log.warning("%s (%s): ignored %s", what, folder, findings.ignored())
    if empty:
        log.warning("%s (%s): no images of class %s", what, folder, shortened(map(repr, empty)))
