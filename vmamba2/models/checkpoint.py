"""Load weights into a model and say what happened to every tensor.

Reads Lightning checkpoints, PyTorch state dicts, safetensors files, the Hugging Face hub and dicts in memory.
"""

import argparse
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from timm.models import load_state_dict_from_hf
from torch import Tensor, nn

HUB_PREFIX = "hf-hub:"
# What Lightning, DDP, torch.compile and larger networks put in front of a parameter's name.
WRAPPERS = ("module.", "model.", "backbone.", "_orig_mod.")
# Where training programs keep the weights inside a checkpoint.
NESTED = ("state_dict", "model")
# Parts of the names of the second scan in bidirectional Mamba-1 networks.
BACKWARD_SCAN = frozenset({"A_b_log", "D_b", "conv1d_b", "x_proj_b", "dt_proj_b"})


@dataclass(frozen=True)
class LoadReport:
    """What load_weights did, by tensor name.

    Args:
        loaded: copied as they are in the source.
        adapted: copied after a change; says which.
        fresh: left as the model had them; says why.
        unexpected: in the source, but of no use to the model.
    """

    loaded: tuple[str, ...] = ()
    adapted: dict[str, str] = field(default_factory=dict)
    fresh: dict[str, str] = field(default_factory=dict)
    unexpected: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"loaded {len(self.loaded)} tensors as they are"]
        lines += [f"adapted {name}: {change}" for name, change in self.adapted.items()]
        fresh = [f"kept fresh {name}: {reason}" for name, reason in self.fresh.items()]
        lines += fresh[:4]
        if len(fresh) > 4:
            lines.append(f"kept fresh {len(fresh) - 4} more")
        if self.unexpected:
            lines.append(f"ignored {len(self.unexpected)} tensors of the source: {_some(self.unexpected)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Source:
    """Tensors by plain name; `outside` are those of a checkpoint that do not belong to the network."""

    label: str
    tensors: dict[str, Tensor]
    outside: tuple[str, ...]


def load_weights(
    model: nn.Module, source: str | os.PathLike[str] | Mapping[str, Any], *, min_fraction: float = 0.9
) -> LoadReport:
    """Load a model's weights from a file, the Hugging Face hub or a state dict.

    Prefixes of wrappers (module., model., backbone., _orig_mod.) are removed. A classifier with another
    number of classes stays as it is in the model. A first convolution with other input channels is adapted
    by timm's rule: one channel gets the sum of the source's, more get a repetition, scaled. Everything else
    must fit: the tensors that do, apart from the classifier, must be `min_fraction` of those of the model and
    of those of the source. Nothing is loaded otherwise, and nothing but tensors is ever unpickled.

    Args:
        model: a network on a real device.
        source: a path (.ckpt, .pt, .pth, .safetensors), `hf-hub:owner/name`, or a state dict.
        min_fraction: 0 loads whatever fits.

    Raises:
        FileNotFoundError: there is no such file.
        ConnectionError: the hub cannot be reached, or has no such model.
        ValueError: the file is not a checkpoint, or not one of this model.
    """
    if not 0 <= min_fraction <= 1:
        raise ValueError(f"load_weights: min_fraction ({min_fraction}) must be between 0 and 1")
    state = model.state_dict()
    names = {_plain(name): name for name in state}
    targets = {plain: state[name] for plain, name in names.items()}
    for name, target in targets.items():
        if target.is_meta:
            raise ValueError(
                f"load_weights: the model ({name} on meta) must be on a real device: call to_empty() first"
            )
    offered = _unwrap(*_read(source), targets)
    values, report = _match(model, targets, offered)
    _check_fraction(targets, offered, report, _classifier_names(model), min_fraction)
    model.load_state_dict({names[plain]: value for plain, value in values.items()}, strict=False)
    return report


def _read(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, dict[str, Tensor]]:
    """Return what to call the source in messages, and its tensors."""
    if isinstance(source, Mapping):
        return "the state dict", _find_tensors("the state dict", source)
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise TypeError(f"load_weights: source ({kind}) must be a path, a hub name or a state dict")
    label = os.fspath(source)
    if label.startswith(HUB_PREFIX):
        return label, _find_tensors(label, _download(label))
    path = Path(label)
    if not path.is_file():
        raise FileNotFoundError(
            f"load_weights: source ({label}) must be an existing file or {HUB_PREFIX}owner/name"
        )
    return label, _find_tensors(label, _read_file(path))


def _read_file(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path, device="cpu")
        # timm's own checkpoints carry their command line as a Namespace, which runs no code.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"load_weights: source ({path}) must be a whole checkpoint that holds nothing but weights and "
            f"plain values: {reason}"
        ) from error


def _download(label: str) -> dict[str, Tensor]:
    try:
        return load_state_dict_from_hf(label.removeprefix(HUB_PREFIX))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConnectionError(
            f"load_weights: source ({label}) must name a model that the Hugging Face hub or its local cache "
            f"has: {reason}"
        ) from error


def _find_tensors(label: str, content: Any) -> dict[str, Tensor]:
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    entries = content.items() if isinstance(content, Mapping) else ()
    tensors = {name: value for name, value in entries if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"load_weights: source ({label}) must hold named tensors, alone or as 'state_dict'")
    return tensors


def _plain(name: str) -> str:
    name = name.replace("._orig_mod.", ".")
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _unwrap(label: str, tensors: dict[str, Tensor], targets: Mapping[str, Tensor]) -> _Source:
    """Remove wrapper prefixes; where there are some, names without one are other parts of a checkpoint."""
    wrapped = any(name.startswith(WRAPPERS) for name in tensors)
    plain: dict[str, str] = {}
    outside = []
    for name in tensors:
        short = _plain(name)
        if wrapped and not name.startswith(WRAPPERS) and short not in targets:
            outside.append(name)
        elif short in plain:
            raise ValueError(
                f"load_weights: source ({label}) must hold one network, not both {plain[short]} and {name}"
            )
        else:
            plain[short] = name
    return _Source(label, {short: tensors[name] for short, name in plain.items()}, tuple(outside))


def _match(
    model: nn.Module, targets: Mapping[str, Tensor], offered: _Source
) -> tuple[dict[str, Tensor], LoadReport]:
    """Pair the tensors of the model with those of the source."""
    values: dict[str, Tensor] = {}
    adapted: dict[str, str] = {}
    fresh: dict[str, str] = {}
    first_convs = _configured(model, "first_conv")
    for name, target in targets.items():
        value = offered.tensors.get(name)
        if value is None:
            fresh[name] = "not in the source"
        elif value.shape == target.shape:
            values[name] = value
        elif name in first_convs and _same_but_dim(value, target, 1):
            values[name] = _adapt_channels(value, target.shape[1])
            adapted[name] = f"{value.shape[1]} input channels in the source, {target.shape[1]} in the model"
        elif name in _classifier_names(model) and _same_but_dim(value, target, 0):
            fresh[name] = f"{value.shape[0]} classes in the source, {target.shape[0]} in the model"
        else:
            fresh[name] = f"{tuple(value.shape)} in the source, {tuple(target.shape)} in the model"
    _keep_classifier_whole(_classifier_names(model), values, fresh)
    loaded = tuple(name for name in values if name not in adapted)
    unexpected = tuple(name for name in offered.tensors if name not in targets)
    return values, LoadReport(loaded, adapted, fresh, unexpected + offered.outside)


def _keep_classifier_whole(classifier: set[str], values: dict[str, Tensor], fresh: dict[str, str]) -> None:
    """Load no part of a classifier when another part of it does not fit."""
    if classifier.isdisjoint(fresh):
        return
    for name in classifier & values.keys():
        del values[name]
        fresh[name] = "the rest of the classifier does not fit"


def _configured(model: nn.Module, key: str) -> set[str]:
    """Names of the tensors of the layers that a model's pretrained_cfg gives as `key`."""
    layers = (getattr(model, "pretrained_cfg", None) or {}).get(key) or ()
    layers = (layers,) if isinstance(layers, str) else layers
    return {f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")}


def _classifier_names(model: nn.Module) -> set[str]:
    # Feature extractors have lost the entry, but the file still has the head.
    return _configured(model, "classifier") or {"head.weight", "head.bias"}


def _same_but_dim(value: Tensor, target: Tensor, dim: int) -> bool:
    others = [size for index, size in enumerate(value.shape) if index != dim]
    return others == [size for index, size in enumerate(target.shape) if index != dim]


def _adapt_channels(weight: Tensor, in_chans: int) -> Tensor:
    base = weight.shape[1]
    if in_chans == 1:
        return weight.float().sum(dim=1, keepdim=True).to(weight.dtype)
    repeated = weight.float()[:, torch.arange(in_chans) % base]
    return (repeated * (base / in_chans)).to(weight.dtype)


def _check_fraction(
    targets: Mapping[str, Tensor],
    offered: _Source,
    report: LoadReport,
    classifier: set[str],
    min_fraction: float,
) -> None:
    wanted = targets.keys() - classifier
    given = offered.tensors.keys() - classifier
    found = (set(report.loaded) | report.adapted.keys()) - classifier
    if len(found) >= min_fraction * max(len(wanted), len(given)):
        return
    hint = f"; min_fraction=0 would load the {len(found)} that fit" if found else ""
    raise ValueError(
        f"load_weights: the backbone tensors that fit ({len(found)} of {len(wanted)} in the model, of "
        f"{len(given)} in {offered.label}) must be at least {min_fraction:.0%} of both: "
        f"{_likely_reason(targets, offered, report)}{hint}"
    )


def _likely_reason(targets: Mapping[str, Tensor], offered: _Source, report: LoadReport) -> str:
    backward = [name for name in report.unexpected if BACKWARD_SCAN & set(name.split("."))]
    if backward:
        return f"the source scans in both directions with two sets of weights ({_some(backward)})"
    for name, reason in report.fresh.items():
        if name in offered.tensors and "classes" not in reason:
            return f"another size or setting of the model ({name} is {reason})"
    shifted = [name for name in report.unexpected if name.partition(".")[2] in targets]
    if len(shifted) > len(report.unexpected) / 2:
        prefix = shifted[0].partition(".")[0]
        return f"an unknown prefix (the names in the source start with '{prefix}.')"
    if report.loaded and report.fresh and not report.unexpected:
        return f"the source has fewer layers (it lacks {_some(list(report.fresh))})"
    if report.loaded and report.unexpected and not report.fresh:
        return f"the source has more layers (the model lacks {_some(report.unexpected)})"
    return f"another architecture (the source has {_some(list(offered.tensors))})"


def _some(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
