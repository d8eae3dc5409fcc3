"""The page of a graph: what Python writes into it, and what a reader sees and does in a browser."""

import json

import networkx as nx
import numpy as np
import pytest
from PIL import Image

from helpers import GraphLearner
from helpers.beyond import viewer

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

DESK, PHONE = 1280, 390  # widths in pixels
HOSTILE = "</script><b>x</b>"
EDGES = [  # ends, weight, probability
    ("a", "b", 2.0, 1.0),
    ("a", "c", -1.0, 0.9),
    ("a", HOSTILE, 0.5, 0.7),
    ("b", "c", 0.25, 0.55),
]


def make_graph(edges=EDGES):
    graph = nx.Graph()
    graph.add_node('far, "quoted"')
    for a, b, weight, probability in edges:
        graph.add_edge(a, b, weight=weight, probability=probability)
    return graph


# --- what Python writes ---------------------------------------------------------------------------------------------


def test_a_graph_as_the_page_reads_it():
    graph = nx.Graph()
    graph.add_edge(7, "x", weight=np.float64(-1 / 3), probability=2 / 3)
    graph.add_edge("x", "y", weight=1e-9, probability=1.0)
    data = viewer.describe(graph, groups={7: 1, "x": "one", "y": 1}, title="T")
    assert data == {
        "title": "T",
        "names": ["7", "x", "y"],
        "group": [0, 1, 0],
        "groups": ["1", "one"],
        "source": [0, 1],
        "target": [1, 2],
        "weight": [-0.333333, 1e-9],
        "probability": [0.666667, 1.0],
    }
    assert viewer.describe(graph, groups=["u", "v", "v"])["group"] == [0, 1, 1]


def test_probabilities_are_for_all_edges_or_for_none():
    graph = nx.Graph()
    graph.add_edge(0, 1, weight=1.0, probability=0.5)
    graph.add_edge(1, 2, weight=1.0)
    assert viewer.describe(graph)["probability"] is None
    assert viewer.describe(graph)["group"] is None


@pytest.mark.parametrize(
    "groups, message",
    [
        (["one", "two"], "groups has 2 entries and the graph 3 nodes"),
        ("abc", "groups has 3 entries"),
        ({0: "one"}, r"groups has no entry for 2 nodes, first \[1, 2\]"),
    ],
)
def test_groups_that_do_not_fit(groups, message):
    with pytest.raises(ValueError, match=message):
        viewer.describe(nx.path_graph(3), groups)


@pytest.mark.parametrize(
    "graph, message",
    [
        (nx.Graph(), "no nodes"),
        (nx.empty_graph(2001), "2,001 nodes: a page holds up to 2,000"),
        (nx.complete_graph(448), "100,128 edges: a page holds up to 100,000"),
        (nx.Graph([(0, 1, {"weight": np.nan})]), "infinite or missing weight"),
    ],
)
def test_graphs_that_no_page_can_show(graph, message):
    with pytest.raises(ValueError, match=message):
        viewer.describe(graph)


def test_nothing_in_the_data_ends_a_script():
    data = {"names": ["</script>", "<!--", "\u2028"]}
    assert "<" not in viewer.embed(data)
    assert json.loads(viewer.embed(data)) == data


@pytest.fixture(scope="module")
def learner():
    X = np.random.default_rng(0).normal(size=(200, 6)).cumsum(1)  # a chain
    return GraphLearner().fit(X)


def test_a_learner_writes_its_graph(learner, tmp_path):
    path = tmp_path / "new folder" / "graph.html"
    learner.to_html(path, title="A & B", groups=list("uuuvvv"))
    text = path.read_text()
    assert "<title>A &amp; B</title>" in text
    assert viewer.embed(viewer.describe(learner.to_networkx(), list("uuuvvv"), "A & B")) in text
    assert [file.name for file in path.parent.iterdir()] == ["graph.html"]


def test_jupyter_gets_a_frame_of_its_own(learner):
    shown = learner.explore(height=321, title='"quoted"')._repr_html_()
    assert shown.startswith('<iframe title="Graph" sandbox="allow-scripts allow-downloads"')
    assert "height: 321px" in shown
    assert shown.count("<") == 2  # the frame's own tags
    assert shown.count('"') == 8


# --- in a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture
def visit(open_window, tmp_path):
    """A function that opens a graph in a browser and returns its page, which must cause no error and no request."""
    visited = []

    def visit(graph, width=DESK, **options):
        path = tmp_path / "graph.html"
        path.write_text(viewer.page(graph, **options))
        window = open_window(width)
        page = window.goto(path.as_uri())
        page.mouse.move(0, 0)
        wait(page, REST)
        visited.append((window, path.as_uri()))
        return page

    yield visit
    for window, uri in visited:
        assert window.errors == []
        assert [url for url in window.requests if not url.startswith(("blob:", "data:"))] == [uri]


def wait(page, condition):
    """Until a condition in JavaScript holds. (Playwright's own function needs `eval`, which the page forbids.)"""
    for _ in range(1000):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(30)
    pytest.fail(f"in vain: {condition}")


REST = "explorer.layout.rests"


def status(page):
    return page.locator(".status").inner_text()


def where(page, k):
    """Where node k is drawn, in pixels of the window."""
    x, y = page.evaluate("k => explorer.toScreen(k)", k)
    box = page.locator("canvas").bounding_box()
    return x + box["x"], y + box["y"]


def colours(page):
    """{colour: number of pixels} of what is drawn."""
    return page.evaluate(
        """() => {
            explorer.drawNow();
            const canvas = document.querySelector("canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const counts = {};
            for (let k = 0; k < data.length; k += 4) {
                const name = [data[k], data[k + 1], data[k + 2]].join();
                counts[name] = (counts[name] ?? 0) + 1;
            }
            return counts;
        }"""
    )


def neighbours(page):
    """Rows of the table of neighbours."""
    rows = page.locator(".list tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


NODE, POSITIVE = "31,59,100", "47,95,158"


def test_a_graph_is_drawn(visit):
    page = visit(make_graph(), title="My graph")
    assert page.title() == page.locator("h1").inner_text() == "My graph"
    assert status(page) == "5 nodes, 4 edges"
    drawn = colours(page)
    assert drawn[NODE] > 5 * 40
    assert drawn[POSITIVE] > 100
    assert any(r > 180 and b < 60 for r, _, b in (map(int, name.split(",")) for name in drawn)), "a negative edge"


def test_the_slider_hides_edges_and_moves_no_node(visit):
    page = visit(make_graph())
    slider = page.get_by_role("slider")
    before = [where(page, k) for k in range(5)]
    many = colours(page)[POSITIVE]
    assert slider.get_attribute("min") == "55"
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert status(page) == "5 nodes, 3 of 4 edges"
    assert slider.get_attribute("aria-valuetext") == page.locator("output").inner_text() == "56 %"
    slider.fill("100")
    assert status(page) == "5 nodes, 1 of 4 edges"
    assert colours(page)[POSITIVE] >= many  # the surest edge, and nothing that is drawn over it
    assert [where(page, k) for k in range(5)] == before


def test_without_probabilities_the_slider_cuts_weights(visit):
    graph = make_graph()
    for *_, values in graph.edges(data=True):
        del values["probability"]
    page = visit(graph)
    assert "of the largest" in page.locator("label").first.inner_text()
    page.get_by_role("slider").fill("50")
    assert status(page) == "5 nodes, 2 of 4 edges"  # 2 and -1
    page.get_by_label("Find").fill("a")
    page.keyboard.press("Enter")
    assert neighbours(page) == [["b", "2.00"], ["c", "-1.00"]]


def test_a_node_is_dragged_and_its_neighbours_follow(visit):
    page = visit(make_graph())
    x, y = where(page, 1)
    other = where(page, 2)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 40, steps=3)
    assert where(page, 1) == pytest.approx((x + 60, y + 40), abs=0.5)
    wait(page, REST)
    assert where(page, 1) == pytest.approx((x + 60, y + 40), abs=0.5)  # held
    page.mouse.up()
    assert where(page, 2) != pytest.approx(other, abs=1)
    assert neighbours(page) == [], "a drag is no click"


def test_a_click_lists_the_neighbours(visit):
    page = visit(make_graph())
    page.mouse.click(*where(page, 1))
    rows = [["b", "2.00", "100 %"], ["c", "-1.00", "90 %"], [HOSTILE, "0.500", "70 %"]]
    assert neighbours(page) == rows
    assert page.locator(".list h2").inner_text().startswith("a")
    page.get_by_role("slider").fill("80")
    assert neighbours(page) == rows[:2]
    page.get_by_role("button", name="c", exact=True).click()
    assert neighbours(page) == [["a", "-1.00", "90 %"]]
    page.get_by_role("button", name="Close").click()
    assert page.get_by_text("Click a node").is_visible()


def test_the_pointer_tells_what_is_there(visit):
    page = visit(make_graph())
    (ax, ay), (bx, by) = where(page, 1), where(page, 2)
    page.mouse.move(ax, ay)
    assert page.locator(".tip").inner_text() == "a"
    page.mouse.move((ax + bx) / 2, (ay + by) / 2)
    assert page.locator(".tip").inner_text() == "a – b\nweight 2.00, probability 100 %"


def test_zoom_and_pan(visit):
    page = visit(make_graph())
    (ax, ay), (bx, by) = where(page, 1), where(page, 2)
    page.mouse.move(ax, ay)
    page.mouse.wheel(0, -100)
    wait(page, f"Math.abs(explorer.toScreen(2)[0] - {bx}) > 1")
    assert where(page, 1) == pytest.approx((ax, ay), abs=0.5)  # the pointer stays where it is on the graph
    factor = np.exp(1 / 3)
    assert where(page, 2) == pytest.approx((ax + factor * (bx - ax), ay + factor * (by - ay)), abs=0.5)
    page.mouse.move(5, 5)
    page.mouse.down()
    page.mouse.move(25, 35)
    page.mouse.up()
    assert where(page, 1) == pytest.approx((ax + 20, ay + 30), abs=0.5)
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Show all").click()
    assert where(page, 1) == pytest.approx((ax, ay), abs=0.5)


def test_search(visit):
    page = visit(make_graph())
    field = page.get_by_label("Find")
    field.fill("  QUOT ")
    assert page.locator(".list li").all_inner_texts() == ['far, "quoted"']
    page.keyboard.press("Enter")
    assert page.locator(".list").inner_text().startswith('far, "quoted"')
    assert "0 neighbours" in page.locator(".list").inner_text()
    assert field.input_value() == ""
    field.fill("nobody")
    assert page.locator(".list").inner_text() == "No node has such a name."


def test_a_threshold_that_leaves_nothing(visit):
    page = visit(make_graph([("a", "b", 1.0, 0.6)]))
    assert page.locator(".nothing").is_hidden()
    page.get_by_role("slider").fill("61")
    assert page.get_by_text("No edge is that strong").is_visible()


def test_the_matrix(visit):
    page = visit(make_graph(), groups=["u", "v", "u", "v", "u"])
    page.get_by_role("button", name="Show the matrix").click()
    order = [0, 2, 4, 1, 3]  # by group
    size = page.evaluate("() => { explorer.drawNow(); return explorer.views.matrix }")
    box = page.locator("canvas").bounding_box()

    def tip(i, j):
        row, column = order.index(i), order.index(j)
        page.mouse.move(*(box[c] + size[c] + size["k"] * (at + 0.5) for c, at in (("x", column), ("y", row))))
        return page.locator(".tip").inner_text()

    assert tip(1, 2) == "a – b\nweight 2.00, probability 100 %"
    assert tip(3, 1) == "a – c\nweight -1.00, probability 90 %"
    assert tip(0, 4) == f'far, "quoted" – {HOSTILE}\nno edge'
    page.mouse.down()
    page.mouse.up()
    assert "0 neighbours" in page.locator(".list").inner_text()  # of the row's node
    assert colours(page).get("229,232,236", 0) > 5 * 100  # the diagonal
    assert page.locator(".legend li").all_inner_texts()[-2:] == ["u", "v"]


def test_downloads(visit):
    page = visit(make_graph(), title="Über / graph")
    page.get_by_role("slider").fill("70")
    with page.expect_download() as caught:
        page.get_by_role("button", name="as CSV").click()
    assert caught.value.suggested_filename == "Über-graph.csv"
    assert caught.value.path().read_text().split("\n") == [
        "source,target,weight,probability",
        "a,b,2,1",
        "a,c,-1,0.9",
        f"a,{HOSTILE},0.5,0.7",
        "",
    ]
    with page.expect_download() as caught:
        page.get_by_role("button", name="as PNG").click()
    box = page.locator("canvas").bounding_box()
    assert caught.value.suggested_filename == "Über-graph.png"
    with Image.open(caught.value.path()) as picture:
        assert picture.size == (2 * box["width"], 2 * box["height"])
        assert len(picture.getcolors(2**24)) > 20


def test_the_picture_says_what_colours_mean(visit):
    page = visit(make_graph(), groups=list("uvwxy"))
    with page.expect_download() as caught:
        page.get_by_role("button", name="as PNG").click()
    with Image.open(caught.value.path()) as picture:
        shades = [picture.convert("RGB").getpixel((32, 2 * (16 + 18 * row))) for row in range(3)]
    assert shades == [(47, 95, 158), (194, 65, 12), (47, 109, 179)]  # positive, negative, the first group


def test_quotation_marks_in_the_edge_list(visit):
    graph = make_graph()
    graph.add_edge('far, "quoted"', "a", weight=1.0, probability=1.0)
    page = visit(graph)
    with page.expect_download() as caught:
        page.get_by_role("button", name="as CSV").click()
    assert '"far, ""quoted""",a,1,1\n' in caught.value.path().read_text()


def test_names_are_text(visit):
    page = visit(
        nx.Graph([(HOSTILE, "<!--<script>", {"weight": 1.0})]), title="</title></script>", groups=["<i>", "&lt;"]
    )
    assert page.locator("h1").inner_text() == page.title() == "</title></script>"
    assert page.locator(".legend li").all_inner_texts()[-2:] == ["<i>", "&lt;"]
    page.get_by_label("Find").fill("script")
    assert sorted(page.locator(".list li").all_inner_texts()) == sorted([HOSTILE, "<!--<script>"])
    assert page.locator("b, .legend li i i").count() == 0


def test_by_keyboard(visit):
    page = visit(make_graph())
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.type"))
    assert reached[0].startswith("Graph: 5 nodes, 4 edges.")
    assert reached[1:4] == ["Zoom in", "Zoom out", "Show all"]
    assert reached[4:8] == ["Show the graph", "Show the matrix of weights", "range", "search"]
    page.get_by_label("Find").fill("a")
    page.keyboard.press("Enter")
    page.locator("canvas").focus()
    x, y = where(page, 1)
    page.keyboard.press("ArrowRight")
    wait(page, REST)
    assert where(page, 1)[0] > x + 2
    page.keyboard.press("Escape")
    assert neighbours(page) == []
    page.keyboard.press("0")
    x, y = where(page, 1)
    page.keyboard.press("ArrowRight")
    assert where(page, 1) == pytest.approx((x - 30, y), abs=0.5)  # without a chosen node the view moves
    page.keyboard.press("+")
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert where(page, 1) == pytest.approx((x, y), abs=0.5)


CONTRASTS = """() => {
    const linear = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
    const ground = (e) => {
        const colour = numbers(getComputedStyle(e).backgroundColor);
        return colour.length === 3 || colour[3] > 0.9 ? colour : ground(e.parentElement);
    };
    const written = [...document.querySelectorAll(".explorer *")].filter((e) => e.innerText?.trim() || e.placeholder);
    return written.map((e) => {
        const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort();
        return [(b + 0.05) / (a + 0.05), e.className || e.tagName];
    });
}"""


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_it_fits_and_can_be_read(visit, width):
    page = visit(make_graph(), width, title="A long title " * 8, groups=["u", "v", "w", "x", "y"])
    page.mouse.click(*where(page, 1))
    assert [text for ratio, text in page.evaluate(CONTRASTS) if ratio < 4.5] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    stage = page.locator(".stage").bounding_box()
    panel = page.locator(".panel").bounding_box()
    assert stage["width"] * stage["height"] > 390 * 400
    if width == PHONE:
        assert panel["y"] >= stage["y"] + stage["height"]
    else:
        assert panel["x"] >= stage["x"] + stage["width"]
        assert page.evaluate("document.documentElement.scrollHeight") == page.viewport_size["height"]


@pytest.mark.parametrize("n_nodes", [1, 12])
def test_a_graph_without_edges(visit, n_nodes):
    page = visit(nx.empty_graph(n_nodes))
    assert page.get_by_text("This graph has no edges.").is_visible()
    assert colours(page)[NODE] > n_nodes * 40
    page.get_by_role("button", name="Show the matrix").click()
    assert status(page).startswith(f"{n_nodes} node")


COUNT = """() => {
    const { stroke, lineTo } = CanvasRenderingContext2D.prototype;
    const counts = { strokes: 0, lines: 0 };
    CanvasRenderingContext2D.prototype.stroke = () => counts.strokes++;
    CanvasRenderingContext2D.prototype.lineTo = () => counts.lines++;
    explorer.drawNow();
    Object.assign(CanvasRenderingContext2D.prototype, { stroke, lineTo });
    return counts;
}"""


def test_many_edges(visit):
    """A frame has few strokes; while something moves only the surest edges are drawn, and all of them once it rests."""
    graph = nx.gnm_random_graph(100, 4000, seed=0)
    for k, (*_, values) in enumerate(graph.edges(data=True)):
        values.update(weight=(-1) ** k * (1 + k % 7), probability=0.5 + k / 10_000)
    page = visit(graph)
    page.evaluate(f"() => {{ window.count = {COUNT}; }}")
    wait(page, "count().lines === 4000")
    assert page.evaluate("count().strokes") < 300  # 100 of them are rims of nodes
    zoom_in = "document.querySelector(\"[aria-label='Zoom in']\").click()"
    assert page.evaluate(f"() => {{ {zoom_in}; return count().lines; }}") == 3000
    wait(page, "count().lines === 4000")


def test_a_layout_rests_after_300_steps_and_a_drag_warms_it_a_little(visit):
    page = visit(nx.gnm_random_graph(40, 80, seed=0))
    steps = """() => {
        const { layout } = explorer;
        let count = 0;
        for (; !layout.rests; count++) layout.step();
        return count;
    }"""
    assert page.evaluate(f"() => {{ explorer.layout.heat = 1; return ({steps})(); }}") in range(290, 301)
    page.get_by_label("Find").fill("1")
    page.keyboard.press("Enter")
    press = 'document.querySelector("canvas").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }))'
    assert page.evaluate(f"() => {{ {press}; return ({steps})(); }}") < 250


def pixels_near(page, x, y, reach=6):
    """Colours (r, g, b) of the canvas around a place of the window."""
    box = page.locator("canvas").bounding_box()
    call = """([x, y, reach]) => {
        explorer.drawNow();
        const context = document.querySelector("canvas").getContext("2d");
        return [...context.getImageData(x - reach, y - reach, 2 * reach, 2 * reach).data];
    }"""
    data = page.evaluate(call, [round(x - box["x"]), round(y - box["y"]), reach])
    return np.reshape(data, (-1, 4))[:, :3]


def test_signs_have_colours_and_a_legend(visit):
    page = visit(make_graph())
    assert page.locator(".legend li").all_inner_texts() == [
        "positive weight", "negative weight", "width: weight up to 2.00", "probability 55 % to 100 %",
    ]  # fmt: skip
    page.mouse.move(0, 0)
    (ax, ay), (bx, by), (cx, cy) = (where(page, k) for k in (1, 2, 3))
    positive = pixels_near(page, (ax + bx) / 2, (ay + by) / 2)
    negative = pixels_near(page, (ax + cx) / 2, (ay + cy) / 2)
    assert (positive[:, 2] - positive[:, 0]).max() > 60  # blue
    assert (negative[:, 0] - negative[:, 2]).max() > 60  # orange
    page.get_by_role("button", name="Show the matrix").click()
    said = ["weight −2.00 to 2.00, white is 0", "paler where it is less probable"]
    assert page.locator(".legend li").all_inner_texts() == said
    page.mouse.move(0, 0)
    view = page.evaluate("() => { explorer.drawNow(); return explorer.views.matrix }")
    box = page.locator("canvas").bounding_box()

    def cell(row, column):
        across, down = (box[c] + view[c] + view["k"] * (at + 0.5) for c, at in (("x", column), ("y", row)))
        return pixels_near(page, across, down, 2).mean(0)

    assert cell(1, 2)[2] - cell(1, 2)[0] > 60
    assert cell(3, 1)[0] - cell(3, 1)[2] > 60
    assert (cell(1, 3) == cell(3, 1)).all()
    assert (cell(0, 4) == 255).all()


def test_a_legend_without_signs_or_probabilities(visit):
    page = visit(nx.Graph([("a", "b", {"weight": 3.0})]))
    assert page.locator(".legend li").all_inner_texts() == ["edge", "width: weight up to 3.00"]
    page.get_by_role("button", name="Show the matrix").click()
    assert page.locator(".legend li").all_inner_texts() == ["weight 0 to 3.00"]


def test_one_giant_makes_no_hairlines_of_the_others(visit):
    graph = nx.star_graph(40)
    for *_, values in graph.edges(data=True):
        values["weight"] = 1.0
    graph.edges[0, 1]["weight"] = 1000.0
    page = visit(graph)
    assert page.locator(".legend li").all_inner_texts()[1] == "width: weight up to 1.00 or more"
    page.evaluate("""() => {
        window.widths = new Set();
        const { stroke } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.stroke = function () { widths.add(this.lineWidth); };
        explorer.drawNow();
        CanvasRenderingContext2D.prototype.stroke = stroke;
    }""")
    assert page.evaluate("Math.max(...widths)") > 2
    assert page.evaluate("widths.size") == 2  # edges, and rims of nodes


def test_less_probable_edges_are_fainter(visit):
    edges = [("a", "b", {"weight": 1.0, "probability": 0.6}), ("c", "d", {"weight": 1.0, "probability": 1.0})]
    page = visit(nx.Graph(edges))
    places = [where(page, k) for k in range(4)]
    faint, solid = (pixels_near(page, *np.mean(places[k : k + 2], 0)).sum(1).min() for k in (0, 2))
    assert faint > solid + 150


def test_within_jupyter(open_window, learner):
    window = open_window(DESK)
    page = window.goto("about:blank")
    page.set_content(learner.explore()._repr_html_())
    frame = page.frame_locator("iframe")
    assert frame.locator(".status").inner_text().startswith("6 nodes")
    with page.expect_download() as caught:
        frame.get_by_role("button", name="as CSV").click()
    assert caught.value.path().read_text().startswith("source,target,weight,probability\n0,1,")
    assert window.errors == []
