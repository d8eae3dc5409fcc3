"""The page "Try it": its network against Python's, its tables against pandas, and every file that a reader may drop."""

import base64
import copy
import io
import json
import os
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import hypergeom

from book import trial
from helpers import learner
from helpers.beyond.atoms import Kinds
from helpers.beyond.broad import BroadL2G, describe, fill_missing_direction
from helpers.beyond.moments import second_moments
from helpers.graphs import all_pairs, laplacian, sample_graphs
from helpers.signals import sample_signals

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

DESK, PHONE = 1280, 390  # widths in pixels
PRECISE = 1e-5  # of the same, all in double precision
TOLERANCE = 1e-4  # of probabilities and weights
RNG = np.random.default_rng(0)
BROAD = BroadL2G()
BROAD.load_state_dict(load_file(trial.NETWORK))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Addresses of two files: the page as it stands in the book, and one with the functions of its worker."""
    folder = tmp_path_factory.mktemp("try")
    scripts = [trial.script(), (trial.STATIC / "try.js").read_text()]
    style = (trial.STATIC / "book.css").read_text() + (trial.FOLDER / "viewer.css").read_text()
    body = "".join(f"<script>{text}</script>" for text in scripts)
    head = '<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,">'
    head += '<meta name="viewport" content="width=device-width">'
    (folder / "try.html").write_text(f'{head}<style>{style}</style><div id="try"></div>{body}')
    functions = "".join(f"<script>{(trial.STATIC / name).read_text()}</script>" for name in trial.WORKER)
    (folder / "functions.html").write_text(head + functions)
    return {name: (folder / f"{name}.html").as_uri() for name in ("try", "functions")}


# --- what Python writes ---------------------------------------------------------------------------------------------


def test_the_network_is_the_default_of_graph_learner():
    weights = learner._network(learner.GraphLearner().prior).state_dict()
    packed = trial.network()["parameters"]
    assert packed.keys() == weights.keys()
    for name, text in packed.items():
        values = np.frombuffer(base64.b64decode(text), "<f4")
        np.testing.assert_array_equal(values, weights[name].numpy().ravel())


def test_examples_have_a_name_and_a_group_per_node_and_five_lines():
    for example in (trial.digits(), trial.stocks(), trial.synthetic()):
        assert len(example["groups"] or example["names"]) == len(example["names"]) <= 200
        assert len(example["python"]) == 5


# --- the network in JavaScript --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def functions(files, open_window):
    page = open_window(DESK).goto(files["functions"])
    unpack = """network => {
        const values = (text) => new Float32Array(Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer);
        const entries = Object.entries(network.parameters).map(([name, text]) => [name, values(text)]);
        window.loaded = unpack({ ...network, parameters: Object.fromEntries(entries) });
    }"""
    page.evaluate(unpack, trial.network())
    return page


def signals(family, n_nodes, n, **options):
    return sample_signals(sample_graphs(family, 1, n_nodes, seed=3, **options), n, seed=1)[0].numpy()


def with_copy(sign, noise):
    X = signals("BA", 15, 100)
    return np.hstack([X, sign * X[:, :1] + noise * RNG.normal(size=(100, 1))])


def signed_chain(n_nodes=20, n=300):
    """Signals of a chain whose edges are positive and negative in turn, on nodes that vary on their own."""
    w = np.resize([0.7, -0.5], n_nodes - 1)
    K = np.diag(np.full(n_nodes, 2.0)) - np.diag(w, 1) - np.diag(w, -1)
    return np.linalg.solve(np.linalg.cholesky(K).T, RNG.normal(size=(n_nodes, n))).T


SIGNALS = {
    "usual": lambda: signals("SBM", 40, 500),
    "fewer signals than nodes": lambda: signals("WS", 40, 12),
    "disconnected": lambda: signals("ER", 25, 300, p=0.05),
    "two equal columns": lambda: with_copy(1, 0),
    "two nearly equal columns": lambda: with_copy(1, 1e-4),
    "two opposite columns": lambda: with_copy(-1, 0),
    "three nodes": lambda: RNG.normal(size=(50, 3)),
    "white noise": lambda: RNG.normal(size=(200, 30)),
    "signed": signed_chain,
    "rows of sum 0": lambda: (X := signed_chain()) - X.mean(1, keepdims=True),
    "another unit": lambda: 1e6 * signals("BA", 12, 60),
    "several units": lambda: signed_chain() * 10.0 ** RNG.integers(-2, 3, 20),
    "200 nodes": lambda: signals("BA", 200, 400),
}
KINDS = {
    "": dict(signed=True, self_loops=True),
    "positive": dict(signed=False, self_loops=True),
    "no self-loops": dict(signed=True, self_loops=False),
    "Laplacian": dict(signed=False, self_loops=False),
}
CASES = [(name, "") for name in SIGNALS] + [(name, kind) for name in ("signed", "usual") for kind in KINDS if kind]


@pytest.mark.parametrize("name, kind", CASES)
def test_estimates_equal_python(functions, name, kind):
    Z = SIGNALS[name]()
    S, counts, *_ = second_moments(Z - Z.mean(0), ddof=1)
    with torch.no_grad():
        expected = BROAD(torch.from_numpy(S), counts[0, 0] - 1, **KINDS[kind])
    call = """(text) => {
        const [S, n, signed, selfLoops] = JSON.parse(text); // as text, many numbers travel faster
        const found = estimate(Float64Array.from(S), n, loaded, { signed, selfLoops });
        return JSON.stringify([[...found.positive], [...found.negative], [...found.weight]]);
    }"""
    data = [S.ravel().tolist(), counts[0, 0] - 1, *KINDS[kind].values()]
    found = np.array(json.loads(functions.evaluate(call, json.dumps(data))))
    np.testing.assert_allclose(found[:2], torch.stack(expected[:2]), atol=TOLERANCE)
    size = TOLERANCE * expected.expected.abs().max().item()
    np.testing.assert_allclose((found[0] - found[1]) * found[2], expected.expected, rtol=TOLERANCE, atol=size)
    likely = (expected.positive + expected.negative).numpy() > 0.05
    np.testing.assert_allclose(found[2][likely], expected.weight[likely], rtol=TOLERANCE)
    # the page computes in double precision, Python's network in single precision
    filled = fill_missing_direction(torch.from_numpy(S)[None], torch.tensor([counts[0, 0] - 1.0]))
    pairs, nodes = describe(filled, counts[0, 0] - 1, Kinds(**KINDS[kind]))
    with torch.no_grad():
        precise = copy.deepcopy(BROAD).double()._decide(pairs, nodes, all_pairs(len(S)))
    np.testing.assert_allclose(found[:2], torch.cat(precise[:2]), atol=PRECISE)
    np.testing.assert_allclose(found[2], precise[2][0], rtol=PRECISE)


def holes(X, share):
    return np.where(RNG.uniform(size=X.shape) < share, np.nan, X)


LEARNED = {
    "signed": (signed_chain, {}),
    "gaps": (lambda: holes(signed_chain(), 0.1), {}),
    "gaps that contradict each other": (lambda: holes(signals("SBM", 20, 40), 0.4), {"standardise": True}),
    "without self-loops": (signed_chain, {"self_loops": False}),
    "a Laplacian of two components": (lambda: signals("ER", 25, 300, p=0.05), {"signed": False, "self_loops": False}),
    "all pairs": (lambda: signals("WS", 12, 60), {"min_probability": 0}),
    "the surest": (lambda: holes(signals("WS", 12, 60), 0.02), {"min_probability": 0.9, "standardise": True}),
    "no edge": (lambda: RNG.normal(size=(200, 6)), {"min_probability": 1}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", LEARNED)
def test_graphs_equal_python(functions, name):
    make, options = LEARNED[name]
    X = make()
    expected = learner.GraphLearner(**options).fit(X)
    call = """([X, m, standardise, signed, selfLoops, minProbability]) => {
        const values = Float64Array.from(X, (x) => x ?? NaN);
        const { S, n } = tableMoments(values, m, standardise);
        return learn(S, n, loaded, { signed, selfLoops, minProbability }, () => {});
    }"""
    values = [None if np.isnan(x) else x for x in X.ravel().tolist()]
    chosen = {"standardise": False, "signed": True, "self_loops": True, "min_probability": 0.5} | options
    found = functions.evaluate(call, [values, X.shape[1], *chosen.values()])
    A, P = (np.zeros((X.shape[1],) * 2) for _ in range(2))
    A[found["source"], found["target"]] = found["weight"]
    P[found["source"], found["target"]] = found["probability"]
    kept = np.triu(expected.adjacency_) != 0
    np.testing.assert_allclose(A, np.triu(expected.adjacency_), atol=TOLERANCE * abs(expected.adjacency_).max())
    np.testing.assert_allclose(P[kept], expected.edge_probability_[kept], atol=TOLERANCE)


def slow_rows(memory, n=400, m=8):
    X = RNG.normal(size=(n, m))
    for t in range(1, n):
        X[t] += memory * X[t - 1]
    return X


def heat_on_a_grid(side=6, n=2000):
    i, j = all_pairs(side**2)
    near = (i // side - j // side).abs() + (i % side - j % side).abs() == 1
    L = laplacian(near.double()).numpy()
    values, V = np.linalg.eigh(L)
    return RNG.normal(size=(n, side**2)) @ (V * np.exp(-5 * values / values[-1])) @ V.T


def apart(n_both, n=100, m=6):
    """So many rows have both of the first two columns."""
    X = signed_chain(m, n)
    X[: n // 2, 0] = X[n // 2 + n_both :, 1] = np.nan
    return X


def pattern(levels, n=280, m=8):
    return np.resize(levels, n)[:, None] * RNG.normal(size=m) + RNG.normal(size=(n, m))


DOUBTS = {
    "none": (signed_chain, {}, 0),
    "units": (lambda: signed_chain() * np.resize([1.0, 2000.0], 20), {}, 1),
    "one other unit": (lambda: signed_chain() * np.append(np.ones(19), 5e4), {}, 1),
    "units that do not matter": (lambda: signed_chain() * np.resize([1.0, 2000.0], 20), {"standardise": True}, 0),
    "copies": (lambda: with_copy(-1, 1e-4), {}, 1),
    "multiples of one column": (lambda: signals("BA", 5, 100)[:, :1] * [1.0, 0.7, 2.2, 3.1, 0.3], {}, 1),
    "many copies": (lambda: np.hstack([X := signals("BA", 5, 100), -X]), {}, 1),
    "time": (lambda: slow_rows(0.8), {}, 1),
    "time with gaps": (lambda: holes(slow_rows(0.9), 0.1), {}, 1),
    "hardly any time": (lambda: slow_rows(0.2), {}, 0),
    "a week": (lambda: pattern([0, 0, 0, 0, 0, 3, 3]), {}, 1),
    "a day with gaps": (lambda: holes(pattern(3 * np.sin(np.arange(24) * np.pi / 12)), 0.1), {}, 1),
    "a step": (lambda: pattern(np.repeat([0, 2], 140)), {}, 1),
    "copies with gaps": (lambda: holes(with_copy(-1, 0), 0.1), {}, 1),
    "mostly copies": (lambda: signals("BA", 5, 100)[:, np.repeat(range(3), 6)], {}, 1),
    "very slow": (lambda: slow_rows(0.995), {"standardise": True}, 1),
    "one cause of all": (lambda: RNG.normal(size=(9000, 1)) + RNG.normal(size=(9000, 12)), {}, 1),
    "smoothed": (heat_on_a_grid, {}, 1),
    "gaps": (lambda: apart(2), {}, 1),
    "three rows in common": (lambda: apart(3), {}, 0),
    "many rows": (lambda: RNG.normal(size=(12_000, 4)), {}, 1),
}
REMEDY = re.compile(r"(: (try|if they have|check|look)|[.;] (Set|If their|signed=|Without|drop|leave)).*")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", DOUBTS)
def test_doubts_equal_python(functions, monkeypatch, name):
    """All but what to do about them, word for word."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(2))
    make, options, n_doubts = DOUBTS[name]
    X = make()
    names = [f"x{k}" for k in range(X.shape[1])]
    expected = learner.GraphLearner(**options).fit(pd.DataFrame(X, columns=names)).doubts_
    call = """([X, names, standardise, signed, selfLoops, minProbability]) => {
        const values = Float64Array.from(X, (x) => x ?? NaN);
        const seen = tableMoments(values, names.length, standardise);
        const edges = learn(seen.S, seen.n, loaded, { signed, selfLoops, minProbability }, () => {});
        return findDoubts({ ...seen, X: values, edges, names, standardise });
    }"""
    values = [None if np.isnan(x) else x for x in X.ravel().tolist()]
    chosen = {"standardise": False, "signed": True, "self_loops": True, "min_probability": 0.5} | options
    found = functions.evaluate(call, [values, names, *chosen.values()])
    assert len(expected) == n_doubts
    assert [REMEDY.sub("", x[0].lower() + x[1:].removesuffix(".")) for x in found] == [
        REMEDY.sub("", x) for x in expected
    ]


def test_a_hypergeometric_tail(functions):
    for case in ((3, 20, 8, 6), (0, 9, 4, 3), (6, 30, 6, 10)):
        k, *rest = case
        found = functions.evaluate("x => chanceOfMore(...x)", list(case))
        assert found == pytest.approx(hypergeom.sf(k - 1, *rest), rel=1e-9)


def test_eigenvalues(functions):
    A = RNG.normal(size=(7, 7))
    A = A + A.T
    values, vectors = functions.evaluate(
        "A => { const { values, vectors } = eigen(Float64Array.from(A), 7); return [[...values], [...vectors]]; }",
        A.ravel().tolist(),
    )
    V = np.reshape(vectors, (7, 7))
    np.testing.assert_allclose(V @ V.T, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(V.T @ np.diag(values) @ V, A, atol=1e-10)


def test_inverse(functions):
    B = RNG.normal(size=(6, 6))
    A = B @ B.T + np.eye(6)
    found = functions.evaluate("A => [...inverse(Float64Array.from(A), 6)]", A.ravel().tolist())
    assert found == pytest.approx(np.linalg.inv(A).ravel().tolist(), abs=1e-12)


# --- tables ---------------------------------------------------------------------------------------------------------

TABLES = {
    "commas": "a,b,c\n" + "1,2.5,-3e2\n4,5,6\n" * 5,
    "semicolons, Windows, decimal commas": "a;b;c\r\n" + "1,5;2;3\r\n4;,5;-6,25e1\r\n" * 5,
    "tabs, quotes and a mark": '\ufeff"a ""x"""\t"b\nb"\tc\n' + '"1"\t2\t 3 \n4\t5\t"6"\n' * 5,
    "no header, blank lines": "\n1,2,3\n\n4,5,6\n" * 5,
    "equal names": "a,a,a\n" + "1,2,3\n4,5,6\n" * 5,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_as_pandas_reads_them(functions, name):
    table = functions.evaluate(
        """text => {
            const table = readTable(text);
            return { ...table, columns: table.columns.map(({ name, values }) => [name, [...values]]) };
        }""",
        TABLES[name],
    )
    options = {} if table["header"] else {"header": None}
    expected = pd.read_csv(io.StringIO(TABLES[name]), sep=table["separator"], decimal=table["decimal"], **options)
    assert [column for column, _ in table["columns"]] == [str(column).lstrip("\ufeff") for column in expected]
    np.testing.assert_array_equal(np.array([values for _, values in table["columns"]]).T, expected.to_numpy(float))


# --- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture
def visit(files, open_window):
    """A function that opens the page, which must cause no error and no request."""
    visited = []

    def visit(width=DESK):
        window = open_window(width)
        visited.append(window)
        return window.goto(files["try"])

    yield visit
    for window in visited:
        assert window.errors == []
        assert [url for url in window.requests if not url.startswith(("blob:", "data:"))] == [files["try"]]


def give(page, content, name="table.csv"):
    content = content if isinstance(content, bytes) else content.encode()
    page.set_input_files("#try-file", {"name": name, "mimeType": "text/csv", "buffer": content})


def learned(page):
    """(i, j): weight and probability of the edges in the page."""
    page.locator(".result").wait_for(state="visible")
    edges = page.evaluate("document.querySelector('#try').edges")
    columns = (edges[name] for name in ("source", "target", "weight", "probability"))
    return {(i, j): values for i, j, *values in zip(*columns)}


def run(page, folder, monkeypatch):
    """The edges of the learner that the five lines of Python make in a folder."""
    monkeypatch.chdir(folder)
    names = {}
    exec(page.locator("#try pre").inner_text(), names)
    assert (folder / "graph.html").stat().st_size > 10_000
    A = names["learner"].adjacency_
    P = names["learner"].edge_probability_
    return {(i, j): [A[i, j], P[i, j]] for i, j in np.argwhere(np.triu(A)).tolist()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for pair, values in expected.items():
        assert found[pair] == pytest.approx(values, rel=TOLERANCE)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_examples_equal_python(visit, number, tmp_path, monkeypatch):
    page = visit()
    page.locator("#try > .choices button").nth(number).click()
    found = learned(page)
    assert len(found) > 30
    assert_equal(found, run(page, tmp_path, monkeypatch))
    assert f"{len(found)} edges" in page.locator(".result .status").inner_text()


def test_the_truth_of_the_synthetic_example_is_shown(visit):
    page = visit()
    page.get_by_role("button", name="whose graph is known").click()
    found = set(learned(page))
    truth = {(i, j) for i, j in np.argwhere(np.triu(true_matrix())).tolist()}
    assert len(found & truth) > 0.8 * len(truth)
    wrong = len(found - truth)
    said = f"{len(found & truth)} of the {len(truth)} true edges are found; "
    said += "1 edge is wrong." if wrong == 1 else f"{wrong} edges are wrong."
    assert page.get_by_text(said).is_visible()
    page.get_by_role("button", name="True graph").click()
    assert page.locator(".result .status").inner_text() == f"30 nodes, {len(truth)} edges"


def true_matrix():
    packed = trial.synthetic()["truth"]["float32"]
    return np.frombuffer(base64.b64decode(packed), "<f4").reshape(30, 30)


CHAIN = pd.DataFrame(RNG.normal(size=(60, 6)).cumsum(1), columns=["a", "</script>", "c, d", "e", "f", "g"])


def test_a_file_is_dropped_and_learned(visit, tmp_path, monkeypatch):
    page = visit()
    frame = CHAIN.assign(g=100 * CHAIN["g"])
    frame.insert(2, "city", "Paris")
    frame.to_csv(tmp_path / "my table.csv", index=False)
    text = (tmp_path / "my table.csv").read_text()
    drop = f"""() => {{
        const data = new DataTransfer();
        data.items.add(new File([{json.dumps(text)}], "my table.csv"));
        document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: data, bubbles: true }}));
    }}"""
    page.evaluate(drop)
    page.get_by_role("group", name="Columns of my table.csv").wait_for()
    assert page.get_by_role("alert").inner_text() == "1 of 7 columns cannot be used: “city” has text in row 2, “Paris”."
    page.get_by_label("e", exact=True).uncheck()
    page.get_by_label("Columns have different units").check()
    page.get_by_role("button", name="Learn the graph").click()
    found = learned(page)
    assert_equal(found, run(page, tmp_path, monkeypatch))
    assert {(0, 1), (1, 2)} <= found.keys()
    page.get_by_label("Find").fill("script")
    assert page.locator(".explorer .list li").all_inner_texts() == ["</script>"]


def test_options_are_those_of_graph_learner(visit, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(1))  # whatever was drawn before
    X = np.hstack([signed_chain(8, 200), 0.02 * signals("ER", 6, 200)])
    frame = pd.DataFrame(np.where(RNG.uniform(size=X.shape) < 0.03, np.nan, X)).add_prefix("x")
    frame.to_csv(tmp_path / "table.csv", index=False)
    page = visit()
    give(page, (tmp_path / "table.csv").read_text())
    go = page.get_by_role("button", name="Learn the graph")
    go.click()
    found = learned(page)
    assert_equal(found, run(page, tmp_path, monkeypatch))
    negative = sum(weight < 0 for weight, _ in found.values())
    assert negative > 1
    assert f"({negative} negative)" in page.locator(".result p").first.inner_text()
    page.get_by_label("Edges may be negative").uncheck()
    page.get_by_label("Columns may vary on their own").uncheck()
    page.get_by_label("probability of at least").fill("0.8")
    go.click()
    found = learned(page)
    assert all(weight > 0 and probability >= 0.8 for weight, probability in found.values())
    assert "GraphLearner(signed=False, self_loops=False, min_probability=0.8)" in page.locator("#try pre").inner_text()
    assert_equal(found, run(page, tmp_path, monkeypatch))


def test_different_units_are_noticed_and_a_wrong_probability_is_mended(visit):
    page = visit()
    give(page, csv(CHAIN.assign(g=1e4 * CHAIN["g"])))
    field = page.get_by_label("probability of at least")
    field.fill("7")
    page.get_by_role("button", name="Learn the graph").click()
    learned(page)
    assert field.input_value() == "0.5"
    assert "-fold, from 'a' to 'g', as if they had different units" in page.get_by_role("alert").inner_text()
    page.get_by_label("Columns have different units").check()
    page.get_by_role("button", name="Learn the graph").click()
    learned(page)
    assert page.get_by_role("alert").is_hidden()


def test_an_example_is_learned_again_with_other_options(visit, tmp_path, monkeypatch):
    page = visit()
    page.get_by_role("button", name="Companies").click()
    learned(page)
    assert page.get_by_label("Columns have different units").is_disabled()  # correlations have none
    page.get_by_label("Edges may be negative").uncheck()
    page.get_by_role("button", name="Learn the graph").click()
    found = learned(page)
    assert all(weight > 0 for weight, _ in found.values())
    assert_equal(found, run(page, tmp_path, monkeypatch))


def csv(frame):
    return frame.to_csv(index=False)


GAPS = CHAIN.copy()
GAPS.iloc[3:5, 1] = np.nan
EMPTY = CHAIN.copy()
EMPTY.iloc[9:, 3] = np.nan
WIDE = pd.DataFrame(RNG.normal(size=(12, 230))).add_prefix("x")
WRONG = {
    "empty": ("", "table.csv: The file is empty."),
    "blank": (" \n\n", "table.csv: The file is empty."),
    "5 rows": (csv(CHAIN[:5]), "The file has 5 rows of values: too few"),
    "text only": ("a,b,c\n" + "x,y,z\n" * 20, "0 of 3 columns can be used: at least 3 columns of numbers that vary"),
    "no text": (b"PK\x03\x04\x00\x00", "This is not a text file"),
    "torn": (csv(CHAIN) + "1,2\n", "Row 62 has 2 cells, and the first row has 6"),
    "open quote": ('a,b,c\n"1,2,3\n', "A quotation mark in row 2 is never closed."),
}
NOTED = {
    "NaN": (csv(GAPS), "2 values are missing: filled by what the rest of the rows says."),
    "mostly NaN": (csv(EMPTY), "1 of 6 columns cannot be used: “e” has 9 values, and 10 are needed."),
    "constant": (csv(CHAIN.assign(a=1)), "“a” has the same value in all rows."),
    "230 columns": (csv(WIDE), "The first 200 of 230 columns are chosen"),
}


def test_every_bad_file_gets_a_message(visit):
    page = visit()
    for content, message in WRONG.values():
        give(page, content)
        page.get_by_text(message).wait_for()
        assert page.locator("#try .message.wrong").is_visible()
        assert page.locator("#try fieldset").is_hidden()


def test_a_large_file_is_refused(visit, tmp_path):
    page = visit()
    path = tmp_path / "large.csv"
    path.touch()
    os.truncate(path, 20_000_000)
    page.set_input_files("#try-file", path)
    page.get_by_text("large.csv has 20 MB, and this page reads up to 15 MB").wait_for()


def test_columns_that_cannot_be_used_are_named(visit):
    page = visit()
    for content, message in NOTED.values():
        give(page, content)
        page.get_by_text(message).wait_for()
        assert page.locator("#try .message.note").is_visible()
        assert page.get_by_role("button", name="Learn the graph").is_enabled()


def test_too_many_and_too_few_columns_are_refused(visit):
    page = visit()
    give(page, csv(WIDE))
    go = page.get_by_role("button", name="Learn the graph")
    page.get_by_role("button", name="All", exact=True).click()
    assert page.get_by_text("230 columns are chosen: this page takes up to 200").is_visible()
    assert go.is_disabled()
    page.get_by_role("button", name="None").click()
    assert page.get_by_text("0 of 230 columns chosen: at least 3 are needed.").is_visible()
    assert go.is_disabled()


def test_on_a_phone_and_by_keyboard(visit):
    page = visit(PHONE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "try-file"
    give(page, csv(CHAIN))
    page.get_by_role("button", name="Learn the graph").focus()
    page.keyboard.press("Enter")
    learned(page)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
