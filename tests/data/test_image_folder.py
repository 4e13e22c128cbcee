from __future__ import annotations

import logging
import os
import pickle
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from data.folder import ImageFolderDataModule
from data.images import ImageReadError
from data.scan import scan_folder


def prepared(root, **options) -> ImageFolderDataModule:
    options = {"batch_size": 1, "image_size": 16, "num_workers": 0} | options
    module = ImageFolderDataModule(root=None if root is None else str(root), **options)
    module.prepare()
    return module


def message(root, **options) -> str:
    """Return the one sentence that preparing fails with."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        prepared(root, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_train_and_val_folders_are_found(ten_pictures):
    module = prepared(ten_pictures)
    assert (module.num_classes, module.class_names) == (2, ["cat", "dog"])
    assert (module.train_size, module.val_size) == (6, 4)
    images, targets = next(iter(module.val_dataloader()))
    assert images.shape == (1, 3, 16, 16)
    assert [int(t) for _, batch in module.val_dataloader() for t in batch] == [0, 0, 1, 1]
    assert images.isfinite().all()
    assert targets.dtype.is_signed


@pytest.mark.parametrize("name", ["my pictures", "lr=0.1", "Bilder äöü", "写真", "a'b\"c", "100%"])
def test_cfg_paths_with_blanks_equal_signs_and_other_letters(pictures, name):
    root = pictures([f"train/{name}/x {name}.png", f"val/{name}/y.png"], folder=name)
    module = prepared(root)
    assert module.class_names == [name]
    assert len(list(module.train_dataloader())) == 1


def test_a_relative_root_is_relative_to_the_working_directory(ten_pictures, monkeypatch):
    monkeypatch.chdir(ten_pictures.parent)
    module = prepared("pictures")
    monkeypatch.chdir("/")
    assert len(list(module.val_dataloader())) == 4


def test_split_folders_can_be_named(pictures, tmp_path):
    root = pictures(["fit/a/0.png", "held out/a/0.png"])
    assert prepared(root, train_dir="fit", val_dir="held out").val_size == 1
    assert prepared(None, train_dir=str(root / "fit"), val_dir=str(root / "held out")).train_size == 1
    assert prepared(root, train_dir=str(root / "fit"), val_dir="held out").train_size == 1


def test_a_missing_root_is_named(tmp_path, monkeypatch):
    missing = tmp_path / "none"
    assert message(missing) == f"root ({missing}) must be an existing folder"
    monkeypatch.chdir(tmp_path)
    assert message("none") == f"root (none) must be an existing folder; it stands for {missing}"


def test_a_root_that_says_nothing_is_named(tmp_path):
    assert message("") == "root ('') must name a folder"
    assert message(None) == "root (None) must name a folder, unless train_dir and val_dir both do"
    (tmp_path / "file").write_text("x")
    assert message(tmp_path / "file") == f"root ({tmp_path / 'file'}) must be a folder, not a file"


def test_an_empty_root_is_named(tmp_path):
    assert message(tmp_path) == (
        f"root ({tmp_path}) must hold a folder 'train', but holds no folder; name another by data.train_dir,"
        " or set data.val_fraction=0.2 if root itself holds the class folders"
    )


def test_class_folders_in_root_get_the_fix(pictures):
    root = pictures(["cat/0.png", "dog/0.png"])
    assert "must hold a folder 'train', but holds cat, dog;" in message(root)


def test_no_val_folder_gets_the_fix(pictures):
    root = pictures(["train/cat/0.png", "test/cat/0.png"])
    assert message(root) == (
        f"root ({root}) must hold a folder 'val', but holds test, train; name another by data.val_dir,"
        " or set data.val_fraction=0.2 to validate on part of the training images"
    )


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_val_fraction_splits_every_class(pictures, prefix):
    root = pictures([f"{prefix}{name}/{i}.png" for name in "ab" for i in range(10)])
    modules = [prepared(root, val_fraction=0.3, seed=seed) for seed in (0, 1)]
    train, val = modules[0].train_dataset.source, modules[0].val_dataset.source
    assert np.bincount(val.targets).tolist() == [3, 3]
    assert np.bincount(train.targets).tolist() == [7, 7]
    assert sorted([*train.indices, *val.indices]) == list(range(20))
    # The same whatever the seed.
    assert (modules[1].val_dataset.source.indices == val.indices).all()


def test_val_fraction_that_contradicts_the_folders_is_refused(ten_pictures):
    assert "val_fraction (0.2) must be null, because root" in message(ten_pictures, val_fraction=0.2)
    assert prepared(ten_pictures, val_fraction=0.34, train_dir="train").val_size == 2
    with pytest.raises(
        ValueError, match=r"^val_fraction \(0.2\) must be null when val_dir \(val\) is given$"
    ):
        ImageFolderDataModule(root="x", val_fraction=0.2, val_dir="val")
    with pytest.raises(ValueError, match=r"^val_fraction \(2\) must be a number between 0.001 and 0.999$"):
        ImageFolderDataModule(root="x", val_fraction=2)


def test_val_fraction_that_leaves_nothing_is_refused(pictures):
    root = pictures(["a/0.png", "a/1.png"])
    assert message(root, val_fraction=0.01) == (
        f"val_fraction (0.01) must leave an image to validate on; train_dir ({root}) holds 2"
    )


def test_da_1_a_truncated_image_is_named(pictures):
    root = pictures([f"train/a/{i}.jpg" for i in range(9)] + ["val/a/0.jpg"])
    broken = root / "train/a/4.jpg"
    broken.write_bytes(broken.read_bytes()[:-200])
    for workers in (0, 2):
        with pytest.raises(ImageReadError) as caught:
            list(prepared(root, num_workers=workers).train_dataloader())
        wanted = rf"image \({re.escape(str(broken))}\) cannot be read: .*truncated.*"
        assert re.fullmatch(wanted, str(caught.value))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp", ".tif", ".ppm"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_da_2_an_empty_or_cut_image_of_any_format_is_named(pictures, suffix, kept):
    root = pictures([f"train/a/0{suffix}", f"val/a/0{suffix}"])
    broken = root / f"val/a/0{suffix}"
    content = broken.read_bytes()
    broken.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ImageReadError) as caught:
        list(prepared(root).val_dataloader())
    assert str(caught.value).startswith(f"image ({broken}) cannot be read: ")
    assert "\n" not in str(caught.value)


def test_an_image_removed_during_the_run_is_named(ten_pictures):
    module = prepared(ten_pictures)
    gone = ten_pictures / "val/dog/1.png"
    gone.unlink()
    with pytest.raises(ImageReadError, match=r"cannot be read: No such file or directory$") as caught:
        list(module.val_dataloader())
    assert str(gone) in str(caught.value)


def test_da_3_da_4_dot_names_are_ignored_with_one_warning(pictures, caplog):
    root = pictures(
        f"{split}/{name}.jpg"
        for split, names in {
            "train": (".ipynb_checkpoints/x", "a/0", "a/.hidden/1", "b/0"),
            "val": ("a/0", "b/0"),
        }.items()
        for name in names
    )
    shutil.copy(root / "train/a/0.jpg", root / "train/a/._0.jpg")
    (root / "train/.DS_Store").write_bytes(b"\0")
    module = prepared(root)
    module.prepare()
    assert (module.class_names, module.train_size) == (["a", "b"], 2)
    assert warnings_of(caplog) == [
        f"train_dir ({root / 'train'}): ignored 3 whose names start with a dot"
        " (.ipynb_checkpoints, a/._0.jpg, a/.hidden)"
    ]


def test_da_5_the_class_index_comes_from_train(pictures, caplog):
    root = pictures([f"train/{name}/0.png" for name in "abc"] + ["val/b/0.png", "val/c/0.png"])
    module = prepared(root)
    (root / "val/a").mkdir()
    assert module.val_dataset.source.targets.tolist() == [1, 2]
    assert prepared(root).val_dataset.source.targets.tolist() == [1, 2]
    assert warnings_of(caplog) == [f"val_dir ({root / 'val'}): no images of class 'a'"] * 2


def test_da_5_an_empty_training_class_keeps_its_index(pictures, caplog):
    root = pictures(["train/b/0.png", "val/b/0.png"])
    (root / "train/a").mkdir()
    module = prepared(root)
    assert module.class_names == ["a", "b"]
    assert module.train_dataset.source.targets.tolist() == [1]
    assert f"train_dir ({root / 'train'}): no images of class 'a'" in warnings_of(caplog)


def test_da_6_a_val_class_unknown_to_train_is_named(pictures):
    root = pictures([f"train/{name}/0.png" for name in "abc"] + [f"val/{name}/0.png" for name in "bcd"])
    assert message(root) == (
        f"val_dir ({root / 'val'}) must have no class that training lacks, but has 'd';"
        " training has 'a', 'b', 'c'"
    )


def test_da_6_a_val_class_in_another_case_gets_a_hint(pictures):
    root = pictures(["train/cat/0.png", "val/CAT/0.png"])
    assert message(root).endswith("; did you mean 'cat'?")


def test_da_7_a_flat_val_folder_gets_the_fix(pictures):
    root = pictures(["train/a/0.jpg"] + [f"val/{i}.jpg" for i in range(5)])
    assert message(root) == (
        f"val_dir ({root / 'val'}) must hold one folder per class; its 5 images lie directly in it"
        " (0.jpg, 1.jpg, 2.jpg and 2 more): move each into a folder named for its class"
    )


def test_da_8_a_third_folder_beside_train_and_val_is_no_class(pictures):
    root = pictures([f"{split}/{name}/0.png" for split in ("train", "val", "test") for name in "ab"])
    assert prepared(root, num_classes=2).class_names == ["a", "b"]
    assert message(root, num_classes=3) == (
        "num_classes (3) must be the number of classes in the data, 2 (a, b), or null"
    )


def test_da_14_suffixes_match_in_any_case(pictures):
    root = pictures(["train/a/1.JPG", "train/b/2.JPEG", "train/b/3.Png", "val/a/1.JPG", "val/b/2.TIFF"])
    module = prepared(root)
    assert (module.train_size, module.val_size) == (3, 2)
    assert len(list(module.train_dataloader())) == 3


def test_da_14_no_images_lists_the_suffixes_seen(tmp_path):
    for name in ("a/x.heic", "a/y.HEIC", "a/notes.txt", "b/README"):
        (tmp_path / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / name).write_bytes(b"x")
    (tmp_path / "val").mkdir()
    assert message(tmp_path) == (
        f"train_dir ({tmp_path / 'train'}) must hold images in class folders; found 0 images in 2 class"
        " folders; suffixes seen: none (1), .heic (2), .txt (1);"
        " suffixes read: .jpg, .jpeg, .png, .bmp, .webp, .tif, .tiff, .ppm, .pgm"
    )


def test_an_empty_train_folder_is_named(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    assert "found 0 images in 0 class folders; suffixes seen: no files" in message(tmp_path)


def test_da_15_links_to_class_folders_and_images_are_followed(pictures):
    root = pictures(["elsewhere/x/0.png", "elsewhere/1.png", "train/b/0.png", "val/a/0.png"])
    (root / "train/a").symlink_to(root / "elsewhere/x", target_is_directory=True)
    (root / "train/b/1.png").symlink_to("../../elsewhere/1.png")
    module = prepared(root)
    assert module.class_names == ["a", "b"]
    assert module.train_dataset.source.targets.tolist() == [0, 1, 1]
    assert len(list(module.train_dataloader())) == 3


def test_da_15_link_loops_neither_hang_nor_count(pictures, caplog):
    root = pictures(["train/a/0.png", "val/a/0.png"])
    for link, target in {
        "train/up": "..",
        "train/a/self": ".",
        "train/a/top": "../..",
        "train/a/gone": "no",
    }.items():
        (root / link).symlink_to(target, target_is_directory=True)
    # A loop that does not pass through the class folder, met while looking for images too deep.
    (root / "train/a/empty/deep").mkdir(parents=True)
    (root / "train/a/empty/deep/back").symlink_to("../../empty", target_is_directory=True)
    module = prepared(root)
    assert (module.class_names, module.train_size) == (["a"], 1)
    assert warnings_of(caplog) == [
        f"train_dir ({root / 'train'}): ignored 3 that link back to a folder above (a/self, a/top, up);"
        " 1 that link to nothing (a/gone)"
    ]


def test_da_15_a_root_that_is_a_link_works(ten_pictures, tmp_path):
    (tmp_path / "link").symlink_to(ten_pictures, target_is_directory=True)
    assert prepared(tmp_path / "link").train_size == 6


def test_da_16_nested_class_folders_are_reported_not_merged(pictures):
    root = pictures([f"train/{group}/cat/{i}.png" for group in "xy" for i in range(2)] + ["val/x/cat/0.png"])
    assert message(root) == (
        f"train_dir ({root / 'train'}) must hold images directly in its class folders; there are images"
        " deeper, in x/cat, y/cat: move them up, or name the folder above the real class folders"
    )


def test_da_17_files_that_are_no_images_are_ignored(ten_pictures):
    for name in (".DS_Store", "Thumbs.db", "labels.csv", "README"):
        (ten_pictures / "train" / name).write_bytes(b"x")
        (ten_pictures / "train/cat" / name).write_bytes(b"x")
    module = prepared(ten_pictures)
    assert (module.class_names, module.train_size) == (["cat", "dog"], 6)


def test_da_17_a_class_of_such_files_alone_is_an_empty_class(ten_pictures, caplog):
    (ten_pictures / "train/ant").mkdir()
    (ten_pictures / "train/ant/labels.csv").write_bytes(b"x")
    assert prepared(ten_pictures).class_names == ["ant", "cat", "dog"]
    assert f"train_dir ({ten_pictures / 'train'}): no images of class 'ant'" in warnings_of(caplog)


def test_images_beside_the_class_folders_are_warned_about(pictures, caplog):
    root = pictures(["train/a/0.png", "train/loose.png", "val/a/0.png"])
    assert prepared(root).train_size == 1
    assert warnings_of(caplog) == [
        f"train_dir ({root / 'train'}): ignored 1 that lie beside the class folders (loose.png)"
    ]


def test_paths_are_held_in_one_array(pictures):
    root = pictures([f"train/a/{i:03d}.png" for i in range(100)])
    index = scan_folder(root / "train", what="train_dir")
    assert index.file_names.dtype == np.dtype("S7")
    assert index.path(42) == str(root / "train/a/042.png")
    assert len(pickle.dumps(index)) < 100 * (7 + 8) + 1000


def test_a_name_that_is_no_utf_8_is_read(ten_pictures):
    odd = os.fsencode(ten_pictures / "train/cat") + b"/\xff.png"
    os.rename(ten_pictures / "train/cat/0.png", odd)
    assert len(list(prepared(ten_pictures).train_dataloader())) == 6


@pytest.mark.parametrize(("in_chans", "mode"), [(1, "L"), (3, "RGB")])
def test_images_follow_in_chans(pictures, in_chans, mode):
    root = pictures(["train/a/0.png", "train/a/1.png", "val/a/0.png"])
    path = root / "val/a/0.png"
    wanted = Image.open(path).convert(mode).resize((16, 16), Image.Resampling.BICUBIC)
    Image.open(path).convert("P").save(root / "val/a/1.png")
    Image.open(path).convert("CMYK").save(root / "val/a/2.tif")
    options = {"mean": [0.0], "std": [1.0], "eval_transform": {"crop_pct": 1.0, "crop_mode": "squash"}}
    images = [x[0] for x, _ in prepared(root, in_chans=in_chans, **options).val_dataloader()]
    assert [image.shape for image in images] == [(in_chans, 16, 16)] * 3
    pixels = np.atleast_3d(np.asarray(wanted)).transpose(2, 0, 1) / 255
    assert np.abs(images[0].numpy() - pixels).max() < 1e-6
