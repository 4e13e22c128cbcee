"""The tables of named cases: every backend runs all of them, outputs and every gradient."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class SSDCase:
    name: str
    sizes: tuple[int, int, int, int, int, int]  # batch, seqlen, nheads, headdim, ngroups, dstate
    chunk_size: int


#       id                 B  L    H   P   G  N    Q
_SSD = [
    ("one_token",          1, 1,   2,  16, 1, 16,  16),
    ("two_tokens",         2, 2,   2,  8,  2, 8,   16),
    ("exact_chunks",       2, 64,  4,  16, 2, 16,  16),
    ("ragged_tail",        2, 49,  4,  16, 1, 16,  16),
    ("prime_length",       1, 67,  2,  8,  1, 8,   32),
    ("chunk_beyond_end",   2, 49,  2,  8,  1, 8,   256),
    ("chunk_of_one",       1, 9,   2,  8,  1, 8,   1),
    ("odd_sizes",          2, 33,  3,  5,  3, 7,   8),
    ("one_head",           2, 40,  1,  24, 1, 48,  16),
    ("group_per_head",     1, 50,  6,  8,  6, 8,   16),
    ("many_heads",         1, 32,  24, 8,  8, 16,  16),
    ("wide_state",         1, 40,  2,  16, 1, 257, 16),
    ("vit_7x7",            2, 49,  24, 16, 8, 32,  64),
    ("vit_14x14",          1, 196, 6,  32, 2, 64,  64),
]  # fmt: skip
SSD_CASES = [SSDCase(name, tuple(sizes), chunk) for name, *sizes, chunk in _SSD]


@dataclass(frozen=True)
class SelectiveCase:
    name: str
    sizes: tuple[int, int, int, int, int]  # batch, dim, seqlen, ngroups, dstate


#       id              B  D   L    G  N
_SELECTIVE = [
    ("one_token",       1, 4,  1,   1, 8),
    ("one_tile",        2, 6,  16,  1, 8),
    ("ragged_tile",     2, 6,  37,  2, 3),
    ("one_state",       2, 5,  20,  1, 1),
    ("odd_sizes",       1, 5,  17,  1, 3),
    ("group_per_channel", 1, 4, 19, 4, 4),
    ("window_7x7",      2, 40, 49,  1, 8),
    ("window_14x14",    1, 40, 196, 1, 8),
]  # fmt: skip
SELECTIVE_CASES = [SelectiveCase(name, tuple(sizes)) for name, *sizes in _SELECTIVE]


def named(cases: list) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])
