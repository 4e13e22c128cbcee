"""Stands in for the native libraries: the interface of their kernels, computed with PyTorch."""

import torch

from ops_ascend import ascendc_call, ascendc_selective, chunked, tiled
from ops_ascend.ascendc_launch import DTYPES, Machine
from ops_ascend.calls import CrossCall, SelectiveCall, SSDCall

PARTS = 2


def named_fields(launch):
    """The call structure's integers that have names."""
    sizes = ascendc_selective.SIZES if launch.kernel.startswith("selective") else ascendc_call.SIZES
    return dict(zip(sizes, launch.fields, strict=False))


def run(launch):
    """Fill the outputs of a launch."""
    sizes = named_fields(launch)
    given = launch.inputs
    first = given.get("x", given.get("u"))
    assert DTYPES[first.dtype] == sizes["dtype"]
    if launch.kernel.startswith("selective"):
        _selective(launch, sizes)
    else:
        _ssd(launch, sizes)


def _dense(inputs):
    """Results must not depend on strides, which PyTorch's own products do in the last bit."""
    return {name: None if t is None else t.contiguous() for name, t in inputs.items()}


def _fill(launch, values):
    for name, output in launch.outputs.items():
        assert (output is None) == (values.get(name) is None), name
        if output is not None:
            output.copy_(values[name])


def _ssd(launch, sizes):
    given = _dense(launch.inputs)
    resets, states = given.pop("resets"), given.pop("initial_states", None)
    checkpoints, dy = given.pop("checkpoints", None), given.pop("dy", None)
    dfinal_states = given.pop("dfinal_states", None)
    call = SSDCall(
        **given,
        initial_states=states,
        seq_idx=None if resets is None else resets.cumsum(1).int(),
        chunk_size=64,
        dt_softplus=bool(sizes["softplus"]),
        dt_limit=launch.fields[len(ascendc_call.SIZES) + 3 * len(ascendc_call.STRIDED) :][:2],
    )
    if launch.kernel == "ssd_forward":
        _ssd_forward(launch, sizes, call)
        return
    call = SSDCall(**(vars(call) | {"initial_states": checkpoints[:, 0]}))
    y = torch.zeros_like(call.x) if dy is None else dy
    dstates = torch.zeros(call.states_shape()) if dfinal_states is None else dfinal_states
    assert (sizes["directions"], sizes["checkpoint_every"]) == (1, ascendc_call.SAVED_EVERY)
    assert checkpoints.shape == ascendc_call.saved_shape(call)
    gradients = {f"d{name}": t for name, t in chunked.ssd_backward(call, y, dstates)._asdict().items()}
    for name in ("dA", "dD", "ddt_bias"):
        if gradients[name] is not None:
            gradients[name] = gradients[name] / (2 * call.x.shape[0])
    for name in ("dB", "dC"):
        gradients[name] = gradients[name] / PARTS
    _fill(launch, gradients)


def _ssd_forward(launch, sizes, call):
    if sizes["directions"] > 1:
        grid = {name: sizes[name] for name in ("directions", "height", "width")}
        _fill(launch, {"y": chunked.cross_forward(CrossCall(**vars(call), **grid))})
        return
    y, final_states = chunked.ssd_forward(call)
    saved = None
    if sizes["checkpoint_every"]:
        # Zeros but for the first: no more is read here.
        saved = torch.zeros(ascendc_call.saved_shape(call, sizes["checkpoint_every"]))
        if call.initial_states is not None:
            saved[:, 0] = call.initial_states
    _fill(launch, {"y": y, "final_states": final_states, "checkpoints": saved})


def _selective(launch, sizes):
    given = _dense(launch.inputs)
    checkpoints, dy = given.pop("checkpoints", None), given.pop("dy", None)
    dlast_state = given.pop("dlast_state", None)
    call = SelectiveCall(**given, delta_softplus=bool(sizes["softplus"]))
    saved = ascendc_selective.saved_elements(call)
    if launch.kernel == "selective_scan":
        y, last_state = tiled.selective_forward(call)
        kept = torch.ones(saved) if saved and sizes["save"] else None
        _fill(launch, {"y": y, "last_state": last_state, "checkpoints": kept})
        return
    assert (0 if checkpoints is None else checkpoints.sum()) == saved
    y = torch.zeros_like(call.u) if dy is None else dy
    dstate = torch.zeros(call.states_shape()) if dlast_state is None else dlast_state
    gradients = {f"d{name}": t for name, t in tiled.selective_backward(call, y, dstate)._asdict().items()}
    for name, axes in (("dA", 2), ("dD", 1), ("ddelta_bias", 1)):
        if gradients[name] is not None:
            gradients[name] = gradients[name].expand(PARTS, *gradients[name].shape[-axes:]) / PARTS
    for name in ("dB", "dC"):
        gradients[name] = gradients[name] / PARTS
    _fill(launch, gradients)


def machine(name="stand-in", run=run):
    return Machine(name, lambda: False, lambda kernel, sums, fields: PARTS, run)
