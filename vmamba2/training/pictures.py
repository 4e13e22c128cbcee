"""The pictures of a run folder: learning curves and predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from torch import Tensor

INK, GRID, FAINT = "#23272f", "#e6e8ec", "#8a919e"
TRAIN, VAL, EMA, RATE = "#7d8597", "#d1495b", "#00798c", "#6a4c93"
RIGHT, WRONG = "#1b7f4b", "#c1272d"
DPI = 150


@dataclass(frozen=True)
class Rates:
    """The learning rate of every update of a run, and how many updates an epoch has."""

    values: Sequence[float]
    updates_per_epoch: int


def draw_curves(
    path: Path, rows: list[dict[str, str]], rates: Rates | None, title: str, training: str = "training"
) -> None:
    """Draw loss, accuracy and learning rate over epochs.

    Args:
        path: the PNG to write.
        rows: rows of metrics.csv.
        rates: learning rates by update; None draws those of the rows.
        title: one line over the picture.
        training: what the training loss is called; it is higher than its like with smoothed or mixed labels.
    """
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", color=INK, fontsize=13, fontweight="bold")
    loss, accuracy, rate = figure.subplots(1, 3)
    _curves(loss, rows, {"train/loss": TRAIN, "val/loss": VAL, "val/ema_loss": EMA}, {"train/loss": training})
    _style(loss, "Loss", "cross entropy (nats)")
    _log_scale(loss)
    _curves(accuracy, rows, {"train/acc1": TRAIN, "val/acc1": VAL, "val/ema_acc1": EMA})
    _style(accuracy, "Accuracy", "top-1 (% of images)")
    _mark_best(accuracy, rows)
    _draw_rates(rate, rows, rates)
    _style(rate, "Learning rate", "learning rate")
    # A factor above the axis would push the title out of line with the others.
    rate.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    _save(figure, path)


def _log_scale(axes: Axes) -> None:
    """A logarithmic scale with plain numbers, where every value is above zero."""
    values = [value for line in axes.get_lines() for value in np.asarray(line.get_ydata(), dtype=float)]
    if not values or min(values) <= 0:
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


LABELS = {
    "train/loss": "training", "val/loss": "validation", "val/ema_loss": "validation, EMA weights",
    "train/acc1": "training", "val/acc1": "validation", "val/ema_acc1": "validation, EMA weights",
}  # fmt: skip


def _curves(
    axes: Axes,
    rows: list[dict[str, str]],
    colours: dict[str, str],
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    for name, colour in colours.items():
        points = [(int(row["epoch"]), float(row[name])) for row in rows if name in row]
        if points:
            epochs, values = zip(*points, strict=True)
            marker = "o" if len(points) <= 40 else ""
            axes.plot(
                epochs,
                values,
                color=colour,
                label=labels.get(name, LABELS[name]),
                marker=marker,
                markersize=4,
                linewidth=2,
            )


def _mark_best(axes: Axes, rows: list[dict[str, str]]) -> None:
    """Write the best validation accuracy beside its point."""
    found = [
        (float(row[n]), int(row["epoch"]), n)
        for row in rows
        for n in ("val/acc1", "val/ema_acc1")
        if n in row
    ]
    if not found:
        return
    best, epoch, name = max(found, key=lambda item: (item[0], -item[1]))
    colour = EMA if "ema" in name else VAL
    axes.plot(
        [epoch], [best], marker="o", markersize=9, markerfacecolor="none", markeredgewidth=1.8, color=colour
    )
    left = epoch > int(rows[-1]["epoch"]) / 2
    axes.annotate(
        f"best {best:.2f} %",
        (epoch, best),
        xytext=(-8 if left else 8, -26),
        textcoords="offset points",
        ha="right" if left else "left",
        color=colour,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )


def _draw_rates(axes: Axes, rows: list[dict[str, str]], rates: Rates | None) -> None:
    if rates is not None:
        epochs = np.arange(len(rates.values)) / rates.updates_per_epoch
        axes.plot(epochs, rates.values, color=RATE, linewidth=2)
        axes.fill_between(epochs, rates.values, color=RATE, alpha=0.08, linewidth=0)
    else:
        axes.plot(
            [int(row["epoch"]) for row in rows], [float(row["lr"]) for row in rows], color=RATE, linewidth=2
        )
    axes.set_ylim(bottom=0)


def _style(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11, pad=8)
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel(unit, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(True, which="major", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, labelcolor=INK, fontsize=9)


@dataclass(frozen=True)
class Prediction:
    """One image with its true and its predicted class."""

    image: Tensor
    target: int
    predicted: int
    confidence: float

    @property
    def right(self) -> bool:
        """Whether the prediction is right."""
        return self.target == self.predicted


def draw_predictions(
    path: Path,
    predictions: Sequence[Prediction],
    class_names: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    title: str,
) -> None:
    """Draw a grid of images with what the model sees in them.

    Args:
        path: the PNG to write.
        predictions: at least one, images (C, height, width) as the network gets them.
        class_names: by class id.
        mean: of the normalisation, per channel.
        std: of the normalisation, per channel.
        title: one line over the picture.
    """
    columns = min(8, len(predictions))
    lines = math.ceil(len(predictions) / columns)
    figure = Figure(figsize=(1.5 * columns + 0.3, 1.85 * lines + 0.6), layout="constrained")
    figure.suptitle(title, x=0.02, ha="left", color=INK, fontsize=12, fontweight="bold")
    grid: Any = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, prediction in zip(grid.flat, predictions, strict=False):
        pixels = _pixels(prediction.image, mean, std)
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        _frame(axes, RIGHT if prediction.right else WRONG)
        name = _short(class_names[prediction.predicted])
        text = f"{name} ({100 * prediction.confidence:.0f} %)"
        if not prediction.right:
            text += f"\ntrue: {_short(class_names[prediction.target])}"
        axes.set_title(text, fontsize=9, color=RIGHT if prediction.right else WRONG, pad=4)
    _save(figure, path)


def _pixels(image: Tensor, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    values = image.float().cpu().numpy() * np.reshape(std, (-1, 1, 1)) + np.reshape(mean, (-1, 1, 1))
    channels_last = np.clip(values, 0, 1).transpose(1, 2, 0)
    return channels_last[..., 0] if channels_last.shape[-1] == 1 else channels_last


def _frame(axes: Axes, colour: str) -> None:
    axes.set_axis_on()
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(2.5)


def _short(name: str, length: int = 14) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, dpi=DPI, facecolor="white", format="png")
    temporary.replace(path)
