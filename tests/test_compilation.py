import numba
import numpy as np
from numba.core.registry import CPUDispatcher

from helpers.beyond import posterior
from helpers.beyond.moments import second_moments
from helpers.engine import gaps, jumps, kernels
from helpers.experiments.compilation import compile_kernels


def test_every_kernel_that_is_kept_is_compiled_for_every_type():
    compile_kernels()
    compiled = {name: f for name, f in vars(kernels).items() if isinstance(f, CPUDispatcher)}
    kept = {name: f.signatures for name, f in compiled.items() if f.stats.cache_path}
    assert len(kept) >= 4
    used = {name: {array.dtype for s in signatures for array in s if isinstance(array, numba.types.Array)}
            for name, signatures in kept.items()}  # fmt: skip
    assert [name for name, types in used.items() if numba.float64 not in types] == []
    assert numba.float32 in used["_forward"]
    assert numba.float32 in used["_backward"]


def test_the_chain_is_compiled_once_for_all_laws():
    compile_kernels()
    compiled = list(jumps.walk.signatures)
    assert len(compiled) == 1
    rng = np.random.default_rng(0)
    for law in posterior.LAWS.values():
        posterior.walk(law, np.eye(law.n_nodes), 30.0, posterior.draw_state(law, rng), 1, 1, rng)
    assert jumps.walk.signatures == compiled


def test_gaps_are_filled_by_what_was_compiled_whatever_the_layout():
    compile_kernels()
    compiled = list(gaps.fill.signatures)
    assert len(compiled) == 1
    X = np.random.default_rng(0).standard_normal((30, 3))
    X[0, 0] = np.nan
    for table in (X, np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2]):
        second_moments(table)
    assert gaps.fill.signatures == compiled
