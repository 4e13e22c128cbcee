"""Each check of the twin, proven by a kernel that breaks the rule; legal kernels pass in silence."""

import pytest

from ops_ascend import twin

SEEDS = (0, 1)


def planted(chip):
    library = twin.library(chip)
    for i in range(library.vm_planted_count()):
        yield i, library.vm_planted_name(i).decode(), library.vm_planted_expects(i).decode()


def findings(chip, seed):
    run = twin.library(chip).vm_planted_run
    return {name: (expects, run(i, seed).decode()) for i, name, expects in planted(chip)}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_planted_fault_is_found(chip, seed):
    faulty = {name: pair for name, pair in findings(chip, seed).items() if pair[0]}
    assert len(faulty) >= 100
    wrong = [f"{name}: {said!r} lacks {text!r}" for name, (text, said) in faulty.items() if text not in said]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sentence_names_the_kernel_and_is_one_line(chip, seed):
    for name, (expects, said) in findings(chip, seed).items():
        if expects:
            assert said.startswith(f"{name}, "), said
            assert "\n" not in said


@pytest.mark.parametrize("seed", SEEDS)
def test_legal_kernels_are_silent_and_right(chip, seed):
    legal = {name: said for name, (expects, said) in findings(chip, seed).items() if not expects}
    assert len(legal) >= 10
    assert not [said for said in legal.values() if said]
