import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers import graphs, paths, training
from helpers.beyond.equivariant import EquivariantL2G
from helpers.beyond.likelihood import unit_scale
from helpers.engine.checkpoints import CheckpointError, files
from helpers.experiments import runs
from helpers.experiments.runs import RUNS, Run
from helpers.metrics import gmse
from helpers.models import L2G, Unrolling
from helpers.real import datasets
from helpers.rivals.deepgraph import DeepGraph, sample_sparse
from helpers.rivals.glad import GLAD

N_RUNS = 368
TINY = Run("tiny", "unrolling", "BA", n_nodes=6, n_layers=3, n_train=64, n_val=16, epochs=2)


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """TINY as the only registered run, with a folder for its checkpoint."""
    monkeypatch.setattr(runs, "RUNS", {"tiny": TINY})
    monkeypatch.setattr(paths, "CHECKPOINTS", tmp_path)
    return tmp_path


# --- the registry --------------------------------------------------------------------------------------------------


def test_the_plain_run_is_the_protocol_of_the_paper():
    run = RUNS["l2g-ba"]
    assert (run.model, run.family, run.n_nodes, run.n_layers) == ("l2g", "BA", 20, 20)
    assert (run.n_train, run.n_val, run.n_signals, run.sigma2) == (4000, 1000, 3000, 1e-4)
    assert (run.epochs, run.batch_size, run.lr, run.decay) == (100, 32, 1e-2, 0.95)
    assert (run.weighted, run.shuffle, run.stream, run.seed, run.params, run.options) == (True, False, False, 0, (), ())
    assert (run.keep_best, run.keep_weights) == (True, True)
    for field in ("epochs", "batch_size", "lr", "decay", "n_train", "n_val", "stream", "keep_best", "seed"):
        assert getattr(run.schedule, field) == getattr(run, field)


def test_names_are_short_unique_and_those_of_their_runs():
    assert len(RUNS) == N_RUNS
    assert all(name == run.name for name, run in RUNS.items())
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{5,36}", name) for name in RUNS)
    assert len({name.lower() for name in RUNS}) == len(RUNS)  # some file systems know no capitals
    assert len({json.dumps(runs.configuration(run), sort_keys=True) for run in RUNS.values()}) == len(RUNS)
    assert len(set(RUNS.values())) == len(RUNS)


def test_names_tell_what_differs_from_the_plain_run():
    differs = {
        "l2g-ba-T10": {"n_layers": 10, "epochs": 60},
        "l2g-ba-T10-n250": {"n_layers": 10, "epochs": 60, "n_train": 250, "keep_weights": False},
        "l2g-ba-m50": {"n_nodes": 50, "epochs": 30, "options": runs.NARROW},
        "l2g-ba-signals100": {"n_signals": 100, "epochs": 30},
        "l2g-ba-sigma1e-4": {"epochs": 60},
        "l2g-ba-sigma1e3": {"sigma2": 1e3, "epochs": 60},
        "l2g-sbm-binary": {"family": "SBM", "weighted": False},
        "unrolling-ba-m100": {"model": "unrolling", "n_nodes": 100, "epochs": 30},
        "l2g-er-seed3": {"family": "ER", "seed": 3, "keep_weights": False},
        "l2g-ba-text": {"options": runs.TEXT, "keep_best": False},
        "l2g-ba-text-seed1": {"options": runs.TEXT, "keep_best": False, "seed": 1, "keep_weights": False},
        "unrolling-ba-text": {"model": "unrolling", "options": runs.TEXT_LOSS, "keep_best": False},
        "l2g-ba-released": {"options": runs.RELEASED, "keep_best": False, "n_train": 6400, "n_val": 1600},
        "unrolling-ba-released": {
            "model": "unrolling", "lr": 1e-4, "decay": 1.0, "options": runs.RELEASED_LOSS, "keep_best": False,
            "n_train": 6400, "n_val": 1600,
        },
        "l2g-ba-shuffled": {"shuffle": True, "keep_weights": False},
        "l2g-ws-harder": {"family": "WS", "params": (("p", 0.5),)},
        "l2g-sbm-text-harder": {
            "family": "SBM", "params": (("n_inter", 8),), "options": runs.TEXT, "keep_best": False
        },
        "l2g-ba-narrow": {"options": runs.NARROW, "epochs": 30},
        "l2g-ba-wide": {"options": runs.WIDE, "epochs": 30},
        "l2g-ba-m50-wide": {"options": runs.WIDE, "epochs": 30, "n_nodes": 50, "keep_weights": False},
        "unrolling-ba-short": {"model": "unrolling", "epochs": 30},
        "recurrent-ws": {"model": "recurrent", "family": "WS", "epochs": 20},
    }  # fmt: skip
    for name, changes in differs.items():
        assert RUNS[name] == replace(RUNS["l2g-ba"], name=name, **changes)
    assert RUNS["glad-ba-sigma1e1-newton_schulz"] == replace(
        RUNS["glad-ba"], name="glad-ba-sigma1e1-newton_schulz", sigma2=10.0, options=(("numerics", "newton_schulz"),)
    )
    assert RUNS["glad-er-newton_schulz-seed2"].seed == 2
    assert RUNS["equivariant-mixed-no_signals"].options == (("signals", False),)


@pytest.mark.parametrize("model", ["l2g", "unrolling"])
def test_the_usual_value_of_a_sweep_is_the_plain_run(model):
    plain = RUNS[f"{model}-ba"]
    assert runs.with_layers(model, 20) == runs.with_nodes(model, 20) == runs.with_signals(model, 3000) == plain
    assert runs.with_graphs(plain, 4000) == plain
    assert plain.keep_weights and not runs.with_graphs(plain, 2000).keep_weights
    assert runs.glad("BA", 1e-4) == RUNS["glad-ba"]
    assert runs.equivariant("mixed", options=runs.ABLATIONS["full model"]) == RUNS["equivariant-mixed"]


def test_the_figure_on_training_has_six_numbers_of_graphs_for_20_nodes():
    small = runs.TRAINING_FIGURE["m = 20, T = 20"]
    large = runs.TRAINING_FIGURE["m = 100, T = 20"]
    assert small == RUNS["l2g-ba"] and large == RUNS["l2g-ba-m100"]
    assert runs.graph_numbers(small) == (125, 250, 500, 1000, 2000, 4000)
    assert runs.graph_numbers(large) == (250, 1000, 4000)
    for run in runs.TRAINING_FIGURE.values():
        chosen = [runs.with_graphs(run, n) for n in runs.graph_numbers(run)]
        assert all(RUNS[changed.name] == changed for changed in chosen)
        assert {changed.epochs for changed in chosen} == {run.epochs}


def test_the_text_and_the_released_code_differ_from_ours_where_facts_say_so():
    text = runs.arguments(RUNS["l2g-ba-text"])
    released = runs.arguments(RUNS["l2g-ba-released"])
    ours = runs.arguments(RUNS["l2g-ba"])

    def differ(a, b):
        return {key for key in a if a[key] != b[key]}

    assert differ(text, released) == {
        "tau_offset", "slope", "readout", "encoder", "reconstruction", "kl", "n_hidden", "n_decoder",
    }  # fmt: skip
    assert differ(released, ours) == {"slope", "gamma_start", "max_gradient", "correction"}
    assert (text["n_hidden"], text["n_decoder"], text["n_latent"]) == (64, 256, 16)


def test_the_ladder_leads_from_the_text_to_ours_one_change_at_a_time():
    steps = [dict(runs.ladder(step, "BA").options) for step in ("text", *runs.LADDER)]
    assert steps[0] == dict(runs.TEXT)
    for before, after, changes in zip(steps, steps[1:], runs.LADDER.values()):
        assert after == before | changes != before
    assert steps[4] == dict(runs.RELEASED)
    ours = runs.arguments(RUNS["l2g-ba"])
    assert {name for name, value in steps[-1].items() if ours[name] != value} == {"slope"}  # the last change
    assert runs.ladder("ours", "ER") == RUNS["l2g-er"]
    assert runs.ladder("text", "ER") == RUNS["l2g-er-text"]
    run = runs.ladder("slope", "ER")
    assert (run.name, run.keep_best, run.keep_weights) == ("l2g-er-ladder_slope", False, False)
    assert [r.seed for r in runs.select("l2g-er-ladder_slope*")] == [0, 1, 2]


def test_a_repair_is_a_single_change_of_the_text():
    for change, changes in runs.REPAIRS.items():
        run = RUNS[f"l2g-er-text_{change}"]
        assert dict(run.options) == dict(runs.TEXT) | changes != dict(runs.TEXT)
        name, options = run.name, run.options
        assert run == replace(RUNS["l2g-er-text"], name=name, options=options, keep_weights=False)


@pytest.mark.parametrize("model", ["unrolling-ba", "l2g-ba", "glad-ba", "equivariant-ba", "deepgraph-ba-fair"])
def test_budgets_differ_in_the_number_of_graphs_and_hardly_in_that_of_steps(model):
    """The rate falls by as much as in the run of the table, however many epochs it is spread over."""
    base = RUNS[model]
    chosen = {n: RUNS[name] for n in runs.BUDGETS if (name := f"{model}-budget{n}") in RUNS}
    assert list(chosen) == {"deepgraph-ba-fair": [250, 1000, 4000, 16_000], "glad-ba": [250, 4000, 64_000]}.get(
        model, [250, 1000, 4000, 16_000, 64_000]
    )
    steps = {"unrolling-ba": 12_500, "l2g-ba": 12_500, "deepgraph-ba-fair": 1000}.get(model, 2000)
    for n, run in chosen.items():
        assert runs.graphs_seen(run) == n
        assert run.epochs * run.n_train / run.batch_size == pytest.approx(steps, rel=0.05)
        assert run.decay**run.epochs == pytest.approx(base.decay**base.epochs, rel=1e-2)
        assert (run.keep_best, run.keep_weights, run.batch_size, run.lr) == (False, False, 32, base.lr)


def test_decoders_differ_in_their_width_only():
    for n_nodes in (20, 50):
        narrow, wide = (runs.with_decoder(n_nodes, width) for width in ("narrow", "wide"))
        assert dict(narrow.options) == {"n_decoder": 50, "correction": True}
        assert dict(wide.options) == {"n_decoder": None, "correction": True}
        assert replace(wide, name="", options=(), keep_weights=True) == replace(narrow, name="", options=())
    wide, ours = RUNS["l2g-sp100-wide"], RUNS["l2g-sp100"]
    assert replace(wide, name=ours.name, options=ours.options, keep_weights=True) == ours


def test_a_large_network_without_weights_leaves_what_notebooks_show():
    tiny = Run("tiny", "l2g", "BA", n_nodes=21, n_layers=2, keep_weights=False)
    model = runs.build(tiny).eval()
    test = runs.evaluate(tiny, model)
    observations, w = runs.sample(tiny, "test", 64)
    np.testing.assert_allclose(test["gmse_layers"][-1], test["gmse"], rtol=1e-5)
    first = gmse(model(observations)[:, 0].detach().clamp_min(0), w)
    np.testing.assert_allclose(test["gmse_layers"][0], first, rtol=1e-5)
    assert "sp100" not in test
    assert "gmse_layers" not in runs.evaluate(replace(tiny, keep_weights=True), model)
    assert "gmse_layers" not in runs.evaluate(replace(tiny, n_nodes=20), runs.build(replace(tiny, n_nodes=20)))
    assert runs.evaluate(replace(RUNS["glad-ba"], n_layers=1), None) == {}


def test_errors_of_deep_graph_are_those_of_its_rescaled_probabilities():
    run = replace(RUNS["deepgraph-ba-fair-budget250"], n_layers=1)
    model = runs.build(run).eval()
    observations, w = runs.sample(run, "test", 64)
    w_hat = model.predict(observations)
    w_hat = w_hat * 10 / w_hat.sum(-1, keepdim=True)
    np.testing.assert_allclose(runs.evaluate(run, model)["gmse"], gmse(w_hat, w), rtol=1e-5)


def test_the_network_for_stocks_leaves_their_graph():
    run = replace(RUNS["l2g-sp100-wide"], n_layers=1, options=(("n_decoder", 2),))
    model = runs.build(run).eval()
    y = datasets.sp100().y["all"].double()
    graph = model.predict(unit_scale(y) * y)
    np.testing.assert_allclose(runs.evaluate(run, model)["sp100"], graph, rtol=1e-5)


def test_runs_that_differ_in_their_seeds_are_stacked():
    chosen = [
        *runs.select("l2g-ba-text*"),
        RUNS["glad-ba"],
        *runs.select("glad-ba-newton*"),
        *runs.select("l2g-ba-seed?"),
    ]
    names = [[run.name for run in group] for group in runs.stacks(chosen)]
    assert names == [
        ["l2g-ba-text", *(f"l2g-ba-text-seed{k}" for k in range(1, 5))],
        ["glad-ba"],
        ["glad-ba-newton_schulz"],
        ["glad-ba-newton_schulz-seed1"],
        ["glad-ba-newton_schulz-seed2"],
        [f"l2g-ba-seed{k}" for k in range(1, 5)],
    ]
    assert [len(group) for group in runs.stacks(chosen[:5], n=2)] == [2, 2, 1]


def test_what_is_trained_together_is_what_is_trained_alone(registered):
    """Only what is missing is trained; each run leaves its errors on the test graphs in its sidecar."""
    seeds = [replace(TINY, name=f"tiny{seed}", seed=seed, keep_weights=seed == 0) for seed in range(3)]
    alone = runs.train_run(replace(seeds[0], name="alone"), progress=False)
    runs.train_run(seeds[1], progress=False)
    before = runs.read_record(seeds[1])
    runs.train_together(seeds, progress=False)
    assert runs.read_record(seeds[1]) == before
    torch.testing.assert_close(runs.load(seeds[0]).theta, alone.theta)
    observations, w = runs.sample(TINY, "test", 64)
    error = runs.test_errors(seeds[0])
    np.testing.assert_allclose(error, gmse(alone.predict(observations), w), rtol=1e-4)
    np.testing.assert_allclose(runs.test_errors(seeds[0], "gmse_shuffled").mean(), error.mean(), rtol=0.3)
    assert runs.test_errors(seeds[2], "auc").shape == (64,)
    assert (runs.test_errors(seeds[2]) != error).any()
    with pytest.raises(CheckpointError, match="weights were not kept"):
        runs.load(seeds[2])


def test_a_diverged_run_has_no_errors(registered):
    wild = replace(TINY, name="wild", lr=1e30, options=(("max_gradient", 0.0),))
    with pytest.raises(FloatingPointError, match=r"diverged in epoch 1: lower lr=1e\+30"):
        runs.train_run(wild, progress=False)
    assert runs.state_of(wild) == "diverged"
    assert runs.test_errors(wild) is None


def test_only_unrolled_networks_are_evaluated():
    assert runs.evaluate(RUNS["glad-ba"], None) == {}


def test_every_registered_run_is_trained_and_nothing_else_lies_around():
    """The sidecars hold all of the configuration: any change to a run, a model's default or a generator's shows."""
    states = {name: runs.state_of(run) for name, run in RUNS.items()}
    assert {name: state for name, state in states.items() if state not in ("trained", "diverged")} == {}
    expected = set()
    for name, run in RUNS.items():
        weights, sidecar, _ = files(runs.checkpoint(run))
        expected |= {weights, sidecar} if run.keep_weights and states[name] == "trained" else {sidecar}
    there = {file for folder in (paths.CHECKPOINTS, paths.WEIGHTS) for file in folder.iterdir()}
    assert {file for file in there if not file.name.startswith((".", "__"))} == expected


def test_the_networks_of_the_learner_are_part_of_the_package():
    names = {*(f"{model}-{family}" for model in ("equivariant", "unrolling") for family in ("ba", "er", "sbm", "ws"))}
    assert names | {"equivariant-mixed", "broad"} == runs.SHIPPED
    for name, run in RUNS.items():
        folder = paths.WEIGHTS if name in runs.SHIPPED else paths.CHECKPOINTS
        assert runs.checkpoint(run) == folder / name
        assert runs.checkpoint(run, paths.ROOT) == paths.ROOT / name


def test_select_takes_shell_patterns():
    assert [run.name for run in runs.select("glad-w*-seed?")] == [f"glad-ws-newton_schulz-seed{k}" for k in (1, 2)]
    assert runs.select() == [*RUNS.values()]
    with pytest.raises(ValueError, match=rf"pattern='nothing-\*' matches none of the {N_RUNS} runs"):
        runs.select("nothing-*")


# --- configuration -------------------------------------------------------------------------------------------------


def test_a_model_gets_what_its_run_says():
    built = {
        name: runs.build(RUNS[name]) for name in ("unrolling-ba-T5", "recurrent-ba", "l2g-sp100", "glad-ba-sigma1e2")
    }
    assert built["unrolling-ba-T5"].theta.shape == (5, 3)
    assert built["recurrent-ba"].theta.shape == (1, 3)
    assert built["recurrent-ba"].n_layers == 20
    assert isinstance(built["l2g-sp100"], L2G)
    assert built["l2g-sp100"].n_nodes == 100
    assert built["l2g-sp100"].correction
    assert (built["glad-ba-sigma1e2"].sigma2, built["glad-ba-sigma1e2"].n_layers) == (100, 15)
    deep = runs.build(RUNS["deepgraph-original-m39"])
    assert (deep.n_nodes, len(deep.blocks), deep.protocol) == (39, 5, "original")
    rounds = runs.build(RUNS["equivariant-mixed-no_messages"])
    assert (len(rounds.rounds), rounds.messages, rounds.signals) == (3, False, True)
    steps = [runs.build(replace(RUNS["unrolling-ba"], n_nodes=m)).theta[0, 2].item() for m in (20, 50)]
    assert steps[0] > steps[1]  # the first step is safe for that size


def test_arguments_are_all_of_them():
    assert runs.arguments(RUNS["recurrent-ba"]) == {
        "n_layers": 20, "n_nodes": 20, "shared": True, "tau": 0.9, "tau_offset": 1, "slope": 0.0, "gamma_start": None,
        "max_gradient": 1.0,
    }  # fmt: skip
    arguments = runs.arguments(RUNS["l2g-sp100"])
    assert arguments["n_decoder"] == 200
    assert arguments["n_latent"] == 16  # a default
    with pytest.raises(TypeError, match="unheard_of"):
        runs.arguments(replace(TINY, options=(("unheard_of", 1),)))


def test_configuration_has_everything_but_the_name():
    configuration = runs.configuration(RUNS["l2g-abide"])
    fields = {
        "model",
        "family",
        "n_nodes",
        "n_layers",
        "n_train",
        "n_val",
        "n_signals",
        "sigma2",
        "weighted",
        "shuffle",
    }
    fields |= {"epochs", "batch_size", "lr", "decay", "stream", "keep_best", "seed"}
    assert configuration.keys() == fields | {"arguments", "graphs"}
    assert configuration["arguments"] == runs.arguments(RUNS["l2g-abide"])
    assert configuration["graphs"] == {"ER": {"p": 0.1}}
    assert runs.configuration(RUNS["deepgraph-original-m20"])["graphs"] == {"density": 0.05, "largest": 0.9}
    varied = runs.configuration(RUNS["equivariant-ba-m100"])["graphs"]
    assert varied["BA"] == {"n_attach": 3}
    assert varied["varied"] == {"n_parts": 16, "n_nodes": (100, 100), "n_signals": (300, 9000)}
    mixed = runs.configuration(RUNS["equivariant-mixed"])["graphs"]
    assert mixed.keys() == {"BA", "ER", "SBM", "WS", "varied"}
    assert mixed["varied"] == {"n_parts": 16, "n_nodes": (10, 100), "n_signals": (10, 10_000)}


def test_a_run_may_go_on_from_another(tmp_path, monkeypatch):
    """GraphLearner's network has the weights of a smaller one at first, and its sidecar says so."""
    names = ["broad-5x64-looks2", "broad-6x64-looks3", "broad-7x64-looks4", "broad-7x64-fourth", "broad-7x64-fifth"]
    names += ["broad-7x96-sixth", "broad-7x96-seventh", "broad-7x96-eighth", "broad"]
    courses = [RUNS[name] for name in names]
    first, second, *_, fifth, _, _, eighth, broad = courses
    assert [run.start for run in courses] == ["", *names[:-1]]
    assert runs.configuration(broad)["start"] == eighth.name and "start" not in runs.configuration(first)
    assert runs.configuration(broad)["average"] == broad.schedule.average == second.schedule.average == 100
    assert "average" not in runs.configuration(first)
    assert runs.configuration(broad)["bfloat16"] and "bfloat16" not in runs.configuration(fifth)
    assert runs.arguments(fifth)["width"] == 64 and runs.arguments(broad)["width"] == 96
    law = runs.broad_law
    laws = [runs.law_of(run) for run in courses]
    assert laws == [law.FIRST, law.SECOND, law.THIRD, law.FOURTH, law.LAW, law.SIXTH, law.LAW, law.EIGHTH, law.EIGHTH]
    assert all(one != other for one, other in pairwise(laws[:-1]))
    for run in courses:
        told = runs.graph_parameters(run)
        whole = told["law"] | {"shares": tuple(told["shares"].values()), "nodes": told["n_nodes"]}
        assert whole == runs.law_of(run)
    assert [runs.arguments(run)["weighs"] for run in courses] == [False, False, *[True] * 7]
    assert [runs.arguments(run)["fits"] for run in courses] == [*[False] * 7, True, True]
    assert [runs.arguments(run)["n_steps"] > 0 for run in courses] == [*[False] * 8, True]
    assert [run.schedule.lr * run.schedule.decay**run.epochs / run.lr for run in courses] == pytest.approx(
        [0.01, 0.02, *[0.01] * 7], rel=2e-3
    )
    few = (*first.params, ("nodes", (4, 5)))
    small = replace(first, name="small", n_layers=2, epochs=1, params=few, options=(("width", 4), ("n_looks", 1)))
    large = replace(small, name="large", start="small", n_layers=3, lr=1e-9, options=(("width", 4), ("n_looks", 2)))
    monkeypatch.setattr(runs, "RUNS", {"small": small, "large": large})
    monkeypatch.setattr(runs, "STEPS_PER_EPOCH", 1)
    with pytest.raises(FileNotFoundError, match=r"small\.safetensors is missing: train it first"):
        runs.train_run(large, folder=tmp_path, progress=False)
    state = runs.train_run(small, folder=tmp_path, progress=False).state_dict()
    grown = runs.train_run(large, folder=tmp_path, progress=False)
    for name, value in state.items():
        torch.testing.assert_close(grown.state_dict()[name], value, rtol=0, atol=1e-7)
    assert not grown.learns_in_bfloat16
    fast = runs.train_run(replace(large, name="fast", bfloat16=True), folder=tmp_path, progress=False)
    assert fast.learns_in_bfloat16
    losses = [
        runs.read_record(replace(large, name=name, bfloat16=name == "fast"), tmp_path)["history"]["loss"][0]
        for name in ("fast", "large")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.02) and losses[0] != losses[1]


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_network_may_be_told_one_kind_of_graphs(split):
    """Those of `stress.spread_case`: half of the degree of a node is the sum of its weights."""
    observations, w = runs.sample(RUNS["broad-told"], split, 40)
    assert w.shape[1] == 1225 and (w >= 0).all()
    assert (w > 0).double().mean().item() == pytest.approx(0.1, abs=0.01)
    torch.testing.assert_close(w.sum(-1), torch.full((len(w),), 25.0))
    assert observations.n_signals.unique().tolist() == [500]
    assert observations.signed.all() and observations.self_loops.all()
    spread = torch.stack([x[x > 0].log().std() for x in w])
    assert spread.min() < 0.5 and 1.5 < spread.max() < 2.5
    # nothing but edges, and a ground of about 1e-4, as the first signal would tell
    assert (torch.linalg.eigvalsh(observations.moments)[:, -1] > 50).all()


def test_a_run_learns_from_the_law_that_it_names():
    run = replace(RUNS["broad-5x64-looks2"], n_nodes=6)
    for law in ((), (("n_signals", (7.5, 7.5)), ("paper", 1.0))):
        observations, _ = runs.sample(replace(run, params=law), "val", 20)
        assert (observations.n_signals == 7).all() == bool(law)


@pytest.mark.parametrize(
    "name, function, defaults",
    [
        ("unrolling-ba", Unrolling.__init__, {"tau": 0.8}),
        ("l2g-ba-T2", L2G.__init__, {"readout": "mean"}),
        ("glad-ba", GLAD.__init__, {"n_hidden": 4}),
        ("deepgraph-ba-fair", DeepGraph.__init__, {"dilation": 4}),
        ("deepgraph-original-m20", sample_sparse, {"density": 0.1}),
        ("equivariant-ba", EquivariantL2G.__init__, {"width": 16}),
    ],
)
def test_a_changed_default_of_a_model_makes_a_checkpoint_stale(monkeypatch, name, function, defaults):
    assert runs.state_of(RUNS[name]) == "trained"
    monkeypatch.setattr(function, "__kwdefaults__", function.__kwdefaults__ | defaults)
    assert runs.state_of(RUNS[name]) == "stale"
    (argument,) = defaults
    with pytest.raises(CheckpointError, match=rf"\.{argument}: .* there, .* here.*`l2g train {name} --retrain`"):
        runs.load(RUNS[name])


def test_a_changed_default_of_a_generator_makes_a_checkpoint_stale(monkeypatch):
    monkeypatch.setattr(graphs._GENERATORS["BA"], "__defaults__", (2,))
    assert [runs.state_of(RUNS[name]) for name in ("l2g-ba-T2", "l2g-er", "equivariant-mixed")] == [
        "stale",
        "trained",
        "stale",
    ]


def test_a_changed_default_of_runs_makes_a_checkpoint_stale(monkeypatch):
    defaults = Run.__init__.__defaults__
    monkeypatch.setattr(Run.__init__, "__defaults__", tuple(2e-2 if x == 1e-2 else x for x in defaults))
    changed = runs.network("l2g", "BA")
    assert changed.lr == 2e-2
    assert runs.state_of(changed) == "stale"


@pytest.mark.parametrize("name, value", [("N_PARTS", 8), ("MIXED_NODES", (10, 50)), ("MIXED_SIGNALS", (10, 1000))])
def test_another_mixture_makes_a_checkpoint_stale(monkeypatch, name, value):
    monkeypatch.setattr(runs, name, value)
    assert runs.state_of(RUNS["equivariant-mixed"]) == "stale"
    assert runs.state_of(RUNS["l2g-ba-T2"]) == "trained"


def test_a_model_starts_from_its_seed_and_leaves_other_random_numbers_alone():
    state = torch.random.get_rng_state()
    first, again, other = (runs.build(replace(RUNS["l2g-ba-T2"], seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.vaes[0].h0, again.vaes[0].h0)
    assert not torch.equal(first.vaes[0].h0, other.vaes[0].h0)


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="model='x': choose one of unrolling"):
        runs.train_run(replace(TINY, model="x"))


# --- data ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, split, n, epoch, shape, squares, log_distance, signals",
    [
        ("l2g-ba", "train", 3, 0, (3, 190), 5.91433357, 0.953254494, 3000),
        ("l2g-ba", "val", 3, 0, (3, 190), 5.91356732, 0.962019538, 3000),
        ("l2g-ba", "test", 3, 0, (3, 190), 5.90762547, 0.973791887, 3000),
        ("l2g-ba", "train", 3, 1, (3, 190), 5.90981218, 0.948734936, 3000),
        ("glad-er-newton_schulz-seed2", "train", 3, 0, (3, 190), 7.90326513, 1.326073768, 3000),
        ("l2g-ws-binary", "test", 3, 0, (3, 190), 120.0, -0.343885060, 3000),
        ("l2g-sp100", "val", 2, 0, (2, 4950), 9.35626244, 0.868583294, 3000),
        ("deepgraph-original-m39", "train", 3, 2, (3, 741), 16.12791688, 0.851850781, 35),
        ("deepgraph-sbm-fair", "train", 3, 2, (3, 190), 5.45787693, 1.250834193, 3000),
        ("equivariant-sbm", "train", 48, 3, (48, 190), 86.77288756, 1.265963723, 126288),
        ("equivariant-mixed", "train", 128, 1, (16, 2926), 82.46233344, 1.088145526, 25081),
        ("equivariant-mixed", "train", 128, 2, (128, 66), 246.35894604, 1.662422807, 125080),
        ("equivariant-mixed", "val", 64, 0, (64, 190), 140.34205202, 1.131335137, 192000),
        ("equivariant-ba-m100", "train", 64, 1, (64, 4950), 552.54241269, 1.129823982, 182852),
        ("broad-exact4", "test", 40, 0, (40, 6), 1000.44506918, 0.038725970, 1642),
        ("broad-exact20", "test", 3, 0, (3, 190), 789.54301757, 0.783180212, 119),
    ],
)
def test_data_are_those_the_checkpoints_were_trained_on(name, split, n, epoch, shape, squares, log_distance, signals):
    observations, w = runs.sample(RUNS[name], split, n, epoch=epoch)
    assert w.shape == shape
    assert w.dtype == torch.float32
    assert observations.moments.dtype == torch.float64
    assert len(observations) == len(w)
    assert w.double().square().sum().item() == pytest.approx(squares, rel=1e-6)
    assert observations.distances.log().mean().item() == pytest.approx(log_distance, rel=1e-6)
    assert torch.as_tensor(observations.n_signals).sum().item() == signals


@pytest.mark.parametrize("split, n, kept", [("train", 7, [8 * 256]), ("val", 60, range(40, 60)), ("test", 60, [60])])
def test_a_law_fills_an_epoch_and_judges_by_graphs_with_edges(split, n, kept):
    observations, w = runs.sample(RUNS["broad-exact4"], split, n)
    assert len(observations) == len(w)
    assert len(w) in kept
    assert w.any(-1).all() == (split == "val")
    assert ((observations.n_signals >= 10) & (observations.n_signals <= 100)).all()
    assert observations.signed and observations.self_loops
    observations, w = runs.sample(RUNS["broad-exact5"], split, n)
    assert w.any(-1).all() and (w >= 0).all()
    assert not observations.signed and not observations.self_loops


def test_a_law_is_part_of_the_configuration():
    graphs = runs.configuration(RUNS["broad-exact10"])["graphs"]
    assert graphs["law"] == {
        "n_nodes": 10, "signed": False, "a": 1.0, "b": 3.0, "spread": 0.5, "unit": 1.0, "sigma2": 1e-4,
    }  # fmt: skip
    assert (graphs["n_signals"], graphs["steps"]) == ((10, 100), 8)


def test_splits_and_seeds_are_distinct_and_shared_between_models():
    draw = lambda run, *args, **kw: runs.sample(run, *args, **kw)[0].moments  # noqa: E731
    sets = [draw(TINY, split, 4, epoch=e) for split in training.SPLITS for e in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(sets) for b in sets[:i])
    other = replace(TINY, model="l2g", seed=1)
    assert torch.equal(draw(TINY, "test", 4), draw(other, "test", 4))
    assert not torch.equal(draw(TINY, "train", 4), draw(other, "train", 4))


@pytest.mark.parametrize("name", ["l2g-ba", "equivariant-ba"])
def test_drawing_may_take_several_processes(monkeypatch, name):
    used = []
    for function in ("sample_graphs", "sample_observations"):
        original = getattr(runs, function)
        watch = lambda *args, n_jobs, f=original, **kw: (used.append(n_jobs), f(*args, **kw))[1]  # noqa: E731
        monkeypatch.setattr(runs, function, watch)
    runs.sample(RUNS[name], "val", 4, n_jobs=3)
    runs.sample(RUNS[name], "val", 4)
    assert used == [3, 3, 1, 1]


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split='dev': choose one of train, val, test"):
        runs.sample(TINY, "dev", 4)


def test_signals_vary_within_an_epoch_and_sizes_between_epochs():
    run = replace(RUNS["equivariant-mixed"], n_train=64)
    sizes = set()
    for epoch in range(4):
        parts = runs.varied(run, epoch)
        assert [part.family for part in parts] == 4 * ["BA", "ER", "SBM", "WS"]
        assert len({part.n_nodes for part in parts}) == 1
        assert len({part.seed for part in parts}) == 16
        assert all(10 <= part.n_signals <= 10_000 for part in parts)
        sizes |= {parts[0].n_nodes}
        assert 10 <= parts[0].n_nodes <= 100
    assert len(sizes) > 1
    seeds = [part.seed for seed in range(3) for part in runs.varied(replace(run, seed=seed), 0)]
    assert len(set(seeds)) == 48
    observations, _ = runs.sample(RUNS["equivariant-er"], "train", 64, epoch=1)
    assert len(set(observations.n_signals.tolist())) == 16
    assert observations.n_signals.min() >= 300
    assert observations.n_signals.max() <= 9000


def test_draws_are_uniform_in_the_logarithm():
    draws = np.log10(runs.log_uniform(np.random.default_rng(0), 10, 1000, 4000))
    assert (draws.min(), draws.max()) == pytest.approx((1, 3), abs=0.01)
    assert np.histogram(draws, 4, (1, 3))[0] == pytest.approx(1000, abs=150)


def test_graphs_without_edges_are_left_out_of_what_is_relative_to_them():
    """Half of the ER graphs on 3 nodes have no edge."""
    run = replace(RUNS["equivariant-er"], n_nodes=3)
    observations, w = runs.sample(run, "val", 64)
    assert 16 < len(w) < 48
    assert w.any(-1).all()
    assert len(observations) == len(observations.n_signals) == len(w)
    assert (~runs.sample(replace(run, model="unrolling"), "val", 64)[1].any(-1)).any()  # other models take them all


def test_larger_graphs_come_in_smaller_numbers():
    run = RUNS["equivariant-mixed"]
    for epoch in range(4):
        m = runs.varied(run, epoch)[0].n_nodes
        _, w = runs.sample(run, "train", 1024, epoch=epoch)
        assert len(w) == pytest.approx(1024 * min(1, (20 / m) ** 2), abs=16)


# --- trained runs --------------------------------------------------------------------------------------------------


def test_a_run_is_trained_once_and_then_loaded(registered, capsys):
    assert runs.state_of(TINY) == "missing"
    model = runs.load_or_train("tiny")
    assert "tiny has no checkpoint; training takes about" in capsys.readouterr().out
    assert runs.state_of(TINY) == "trained"
    record = runs.read_record(TINY)
    assert len(record["history"]["loss"]) == 2
    again = runs.load_or_train(TINY)
    assert capsys.readouterr().out == ""
    assert torch.equal(again.theta, model.theta)
    assert torch.equal(runs.load(TINY).theta, model.theta)
    assert sorted(path.name for path in registered.iterdir()) == ["tiny.json", "tiny.safetensors"]
    assert runs.load(TINY, device="meta").theta.device.type == "meta"


def test_a_folder_may_be_named(tmp_path):
    runs.train_run(TINY, folder=tmp_path, progress=False)
    assert runs.state_of(TINY, tmp_path) == "trained"
    assert runs.read_record(TINY, tmp_path)["name"] == "tiny"
    assert runs.load_or_train(TINY, folder=tmp_path, device="meta").theta.device.type == "meta"
    assert runs.load(TINY, folder=tmp_path).theta.shape == (3, 3)
    before = (tmp_path / "tiny.json").stat().st_mtime_ns
    runs.train_run(TINY, folder=tmp_path, progress=False)
    assert (tmp_path / "tiny.json").stat().st_mtime_ns == before
    runs.train_run(TINY, folder=tmp_path, progress=False, retrain=True)
    assert (tmp_path / "tiny.json").stat().st_mtime_ns != before


def test_training_learns_and_keeps_the_best_epoch(tmp_path):
    run = replace(TINY, n_train=640, n_layers=10, epochs=8)
    model = runs.train_run(run, folder=tmp_path, progress=False)
    errors = runs.read_record(run, tmp_path)["history"]["val_gmse"]
    assert min(errors) < 0.6 * errors[0]
    observations, w = runs.sample(run, "val", run.n_val)
    assert float(f"{gmse(model.predict(observations), w).mean().item():.6g}") == min(errors)


@pytest.mark.parametrize("name", ["l2g-ba", "recurrent-er", "glad-ba", "deepgraph-ba-fair", "equivariant-mixed"])
def test_every_kind_of_model_trains(tmp_path, name):
    run = replace(RUNS[name], n_train=16, n_val=4, batch_size=8, epochs=2, n_layers=2)
    model = runs.train_run(run, folder=tmp_path, progress=False)
    record = runs.read_record(run, tmp_path)
    assert np.isfinite(record["history"]["loss"]).all()
    dtypes = {t.dtype for t in load_file(tmp_path / f"{name}.safetensors").values()}
    assert (torch.float16 in dtypes) == (run.model == "l2g")
    observations, w = runs.sample(run, "test", 4)
    assert model.predict(observations).shape == w.shape


def test_a_missing_checkpoint_says_how_to_train(registered):
    with pytest.raises(FileNotFoundError, match=r"tiny\.safetensors is missing.*\(`l2g train tiny`\)"):
        runs.load(TINY)
    with pytest.raises(FileNotFoundError, match=r"`l2g train tiny`"):
        runs.read_record(TINY)


def test_a_damaged_checkpoint_says_how_to_train_again(registered):
    runs.train_run(TINY, progress=False)
    (registered / "tiny.json").unlink()
    for call in (runs.load, runs.read_record, runs.train_run, runs.load_or_train):
        with pytest.raises(CheckpointError, match=r"\(`l2g train tiny --retrain`\)"):
            call(TINY)


def test_advice_is_given_only_for_what_the_command_knows(registered):
    with pytest.raises(FileNotFoundError) as caught:
        runs.load(replace(TINY, seed=1))
    assert "l2g train" not in str(caught.value)


def test_names_are_looked_up():
    assert runs.look_up("l2g-ba") is RUNS["l2g-ba"]
    assert runs.look_up(TINY) is TINY
    with pytest.raises(ValueError, match="run='l2g': `l2g list` shows"):
        runs.look_up("l2g")


def test_expected_seconds_are_those_of_an_earlier_training(tmp_path):
    runs.train_run(TINY, folder=tmp_path, progress=False)
    sidecar = tmp_path / "tiny.json"
    record = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps(record | {"seconds": 10.0}))
    assert runs.expected_seconds(TINY, tmp_path) == pytest.approx(10)
    longer = replace(TINY, epochs=6, n_train=128, n_layers=12)
    assert runs.expected_seconds(longer, tmp_path) == pytest.approx(10 * 3 * 2 * 4)


@pytest.mark.parametrize(
    "content", [None, "[]", '{"seconds": 3}', "{", '{"configuration": {"epochs": 0}, "seconds": 3}']
)
def test_expected_seconds_are_measured_if_there_was_none(tmp_path, monkeypatch, content):
    if content is not None:
        (tmp_path / "tiny.json").write_text(content)
    asked = []

    def measure(model, data, schedule):
        asked.append((type(model), schedule))
        observations, _ = data("train", 5, 1)
        assert torch.equal(observations.moments, runs.sample(TINY, "train", 5, epoch=1)[0].moments)
        return 42.0

    monkeypatch.setattr(training, "expected_seconds", measure)
    assert runs.expected_seconds(TINY, tmp_path) == 42
    assert asked == [(Unrolling, TINY.schedule)]


def test_the_price_is_told_in_minutes(registered, monkeypatch, capsys):
    monkeypatch.setattr(training, "expected_seconds", lambda *_: 90.0)
    runs.load_or_train(TINY)
    assert "about 1.5 minutes on one core" in capsys.readouterr().out


def test_a_step_of_a_run_is_timed(monkeypatch):
    asked = []
    monkeypatch.setattr(training, "step_seconds", lambda model, data, *rest: asked.append((type(model), *rest)))
    runs.step_seconds(TINY, steps=2)
    runs.step_seconds(TINY)
    assert asked == [(Unrolling, TINY.schedule, 2), (Unrolling, TINY.schedule, 4)]
