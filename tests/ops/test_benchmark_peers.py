"""The peers of the benchmark compute the operators: anything else would be a comparison with nothing."""

import math
from functools import partial

import pytest
import torch

from ops_ascend import selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.benchmark import installed_peers, selective_peers, ssd_peers
from ops_ascend.benchmark.cases import Case, GridShape, SelectiveShape, SSDShape
from ops_ascend.errors import outputs_and_gradients, tensor_error

SSD_FORMS = {
    "einsum": ssd_peers.einsum,
    "einsum_matrix": partial(ssd_peers.einsum, states="matrix"),
    "segment_sum": ssd_peers.segment_sum,
    "chunk_loop": ssd_peers.chunk_loop,
    "chunk_list": ssd_peers.chunk_list,
}
SELECTIVE_FORMS = {
    "token_loop": selective_peers.token_loop,
    "indexed_token_loop": selective_peers.indexed_token_loop,
}
#                       batch, seqlen, nheads, headdim, dstate, chunk_size, ngroups
SSD_SHAPES = {
    "ragged": SSDShape(2, 37, 4, 8, 8, 16, 2),
    "one_token": SSDShape(1, 1, 2, 8, 8, 16, 1),
    "one_chunk": SSDShape(2, 16, 2, 8, 8, 16, 2),
    "shorter_than_a_chunk": SSDShape(1, 11, 6, 8, 4, 64, 3),
}
forms = pytest.mark.parametrize("form", SSD_FORMS.values(), ids=list(SSD_FORMS))


def assert_same(peer, operator, tensors, limit=1e-12):
    """A peer's output and gradients, in float64, are those of the operator's reference."""
    wide = {name: t.double() for name, t in tensors.items()}
    have = outputs_and_gradients(peer, wide, ("y",))
    want = outputs_and_gradients(operator, wide, ("y",))
    for name, exact in want.items():
        assert tensor_error(name, have[name], exact).relative_rms <= limit, name


@forms
@pytest.mark.parametrize("shape", SSD_SHAPES.values(), ids=list(SSD_SHAPES))
def test_ssd_peers_are_the_recurrence(form, shape):
    def operator(**tensors):
        options = {"chunk_size": shape.chunk_size, "dt_softplus": True, "backend": "reference"}
        return ssd_scan(**tensors, **options)[0]

    tensors = Case("here", shape, "small").tensors(torch.float64)
    assert_same(partial(form, chunk_size=shape.chunk_size), operator, tensors)


@forms
@pytest.mark.parametrize("hoisted", [False, True])
def test_a_peer_once_per_direction_is_the_grid_operator(form, hoisted):
    case = Case("here", GridShape(2, 3, 5, 4, 8, 8, 8, 2), "small")

    def operator(**tensors):
        fixed = {"chunk_size": 8, "dt_softplus": True, "backend": "reference"}
        return ssd_cross_scan(**tensors, **case.options(), **fixed)

    grid = ssd_peers.each_direction(partial(form, chunk_size=8), hoisted=hoisted)
    assert_same(partial(grid, **case.options()), operator, case.tensors(torch.float64))


@pytest.mark.parametrize("form", SELECTIVE_FORMS.values(), ids=list(SELECTIVE_FORMS))
@pytest.mark.parametrize("seqlen", [1, 19])
def test_selective_peers_are_the_recurrence(form, seqlen):
    def operator(**tensors):
        return selective_scan(**tensors, delta_softplus=True, backend="reference")[0]

    tensors = Case("here", SelectiveShape(2, 6, seqlen, 4), "small").tensors(torch.float64)
    assert_same(form, operator, tensors)


@forms
def test_strong_decays_leave_the_gradients_of_peers_finite(form):
    tensors = Case("here", SSDShape(1, 64, 2, 8, 8, 64, 1), "small").tensors()
    # Steps of about 1.3: exp of what the mask hides would overflow.
    tensors["A"].fill_(-16.0)
    tensors["dt_bias"].fill_(1.0)
    results = outputs_and_gradients(partial(form, chunk_size=64), tensors, ("y",))
    assert all(value.isfinite().all() for value in results.values())


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    missing = installed_peers.Installed("nothing", "ssd_scan", "no_such_package.scan", "scan", lambda f: f)
    monkeypatch.setattr(installed_peers, "INSTALLED", (missing,))
    assert installed_peers.usable("ssd_scan") == ([], ["nothing: no_such_package is not installed"])


def test_a_package_without_the_function_is_named(monkeypatch):
    other = installed_peers.Installed("other", "ssd_scan", "math", "no_such_function", lambda f: f)
    usable = installed_peers.Installed("square root", "ssd_scan", "math", "sqrt", lambda f: f)
    monkeypatch.setattr(installed_peers, "INSTALLED", (other, usable))
    found, left_out = installed_peers.usable("ssd_scan")
    assert found == [(usable, math.sqrt)]
    assert len(left_out) == 1
    assert left_out[0].startswith("other: math cannot be used: ")


@pytest.mark.parametrize("peer", installed_peers.INSTALLED, ids=lambda peer: f"{peer.op} {peer.name}")
def test_installed_peers_are_the_recurrence(peer):
    found = dict(installed_peers.usable(peer.op)[0])
    if peer not in found:
        pytest.skip(f"{peer.package} is not installed")
    if peer.op == "ssd_scan":
        tensors = Case("here", SSDShape(2, 32, 4, 8, 8, 16, 2), "small").tensors()
        run = partial(found[peer], chunk_size=16)
        have = outputs_and_gradients(run, tensors, ("y",))
        want = outputs_and_gradients(partial(ssd_peers.einsum, chunk_size=16), tensors, ("y",))
    else:
        tensors = Case("here", SelectiveShape(2, 6, 19, 4), "small").tensors()
        have = outputs_and_gradients(found[peer], tensors, ("y",))
        want = outputs_and_gradients(selective_peers.token_loop, tensors, ("y",))
    for name, value in want.items():
        assert tensor_error(name, have[name], value).relative_rms <= 1e-5, name
