"""The pictures of a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vmamba2.training.callbacks import PredictionGrid
from vmamba2.training.pictures import Prediction, Rates, draw_curves, draw_predictions


def colours(path: Path) -> set[tuple[int, ...]]:
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    return {tuple(map(int, colour)) for colour in np.unique(pixels, axis=0)}


def row(epoch: int, **values: float) -> dict[str, str]:
    texts = {name.replace("_", "/", 1): str(value) for name, value in values.items()}
    return {"epoch": str(epoch), "step": str(10 * epoch), "lr": "0.1", **texts}


def test_curves_have_a_line_of_its_own_colour_per_metric(tmp_path: Path) -> None:
    rows = [row(e, train_loss=2 / e, val_loss=3 / e, train_acc1=9 * e, val_acc1=8 * e) for e in range(1, 6)]
    plain, averaged = tmp_path / "plain.png", tmp_path / "averaged.png"
    draw_curves(plain, rows, Rates([0.1] * 50, 10), "a run")
    for e, values in enumerate(rows, start=1):
        values |= {"val/ema_loss": str(4 / e), "val/ema_acc1": str(7.0 * e)}
    draw_curves(averaged, rows, None, "a run")
    teal, red, grey = (0, 121, 140), (209, 73, 91), (125, 133, 151)
    assert {red, grey} <= colours(plain)
    assert teal not in colours(plain)
    assert {red, grey, teal} <= colours(averaged)
    width, height = Image.open(plain).size
    assert width > 1500
    assert height > 500


def test_curves_of_one_epoch_and_of_a_zero_loss_can_be_drawn(tmp_path: Path) -> None:
    draw_curves(tmp_path / "curves.png", [row(1, train_loss=0.0, train_acc1=100.0)], None, "")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_predictions_show_right_and_wrong_ones_in_their_colours(tmp_path: Path) -> None:
    right = Prediction(torch.zeros(3, 8, 8), target=0, predicted=0, confidence=0.9)
    wrong = Prediction(torch.zeros(3, 8, 8), target=1, predicted=0, confidence=0.4)
    green, red = (27, 127, 75), (193, 39, 45)
    for name, shown, expected in (
        ("a", [right], {green}),
        ("b", [wrong], {red}),
        ("c", [right, wrong], {green, red}),
    ):
        path = tmp_path / f"{name}.png"
        draw_predictions(path, shown, ["cat", "a dog with a very long name"], [0.5] * 3, [0.2] * 3, "title")
        assert colours(path) & {green, red} == expected


def test_a_run_leaves_both_pictures_with_mistakes_first(build: Any) -> None:
    run = build("callbacks.predictions.images=6", pictures=True).fit()
    assert {"curves.png", "predictions.png", "metrics.csv"} <= {path.name for path in run.folder.iterdir()}
    grid = run.callback(PredictionGrid)
    accuracy = float(run.rows()[-1]["val/ema_acc1"])
    assert grid._seen == 16
    assert 100 * (1 - grid._wrong_seen / 16) == accuracy
    assert all(not prediction.right for prediction in grid._wrong)
    assert all(p.right and p.target == target for target, kept in grid._right.items() for p in kept)


def test_pixels_are_the_image_before_its_normalisation(tmp_path: Path) -> None:
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    colour = np.array([0.8, 0.2, 0.6])
    image = torch.tensor((colour - mean) / std, dtype=torch.float32).view(3, 1, 1).expand(3, 8, 8)
    path = tmp_path / "p.png"
    draw_predictions(path, [Prediction(image, 0, 0, 1.0)], ["x"], mean, std, "")
    nearest = min(np.abs(np.array(seen) - 255 * colour).max() for seen in colours(path))
    assert nearest <= 1
