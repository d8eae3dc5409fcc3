"use strict";

// showGraph(root, graph, layout) fills the element `root` with a graph to look at and to touch. `layout`, which may be left
// out, is that of another graph on the same nodes, whose places are kept.
//
// graph: {title, names, group, groups, source, target, weight, probability}, as `page` in viewer.py writes it: arrays
// over nodes (names, group), over edges (source, target, weight, probability) and the names of the groups; `group` and
// `probability` may be null. Names are data: they become text of the page, never markup.
const showGraph = (() => {
  const POSITIVE = "#2f5f9e";
  const NEGATIVE = "#c2410c";
  const NODE = "#1f3b64";
  const INK = "#1c2430";
  const CHOSEN = "#e08214";
  const GROUPS = [
    "#2f6db3", "#d1495b", "#3a7d44", "#b8860b", "#7b5ea7", "#0f8b8d",
    "#e0701a", "#9c5a3c", "#c2559d", "#6b7280", "#5b8c00", "#1b1b3a",
  ];
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const LONGEST = 26; // characters of a name beside its node
  const CLICK = 4; // pixels that a pointer may move and still have clicked
  const NEAR = 14; // pixels from a node within which it is meant
  const MOVING = 3000; // edges that are drawn while something moves; all of them once it rests
  const FEW = 20; // edges
  const FADES = 10; // degrees of opacity
  const WIDTHS = 12; // degrees of width
  const LONGEST_PATH = 100; // edges that are drawn at once

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
  const shorten = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);
  const number = (x) => (x === 0 || (Math.abs(x) >= 0.01 && Math.abs(x) < 1e4) ? x.toPrecision(3) : x.toExponential(1));
  const percent = (p) => (p > 0.995 && p < 1 ? "> 99 %" : p < 0.005 && p > 0 ? "< 1 %" : `${Math.round(100 * p)} %`);
  const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const slug = (text) => text.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "graph";
  const count = (k, word) => `${k.toLocaleString("en")} ${word}${k === 1 ? "" : "s"}`;

  function offer(name, blob) {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  return (root, graph, before = null) => {
    const n = graph.names.length;
    const edges = graph.weight.map((_, e) => e);
    const size = graph.weight.map(Math.abs);
    const heaviest = size.reduce((a, b) => Math.max(a, b), 0) || 1;
    // the weight from which on edges have their full width: a few giants must not make hairlines of all others
    const full = size.length > FEW ? size.slice().sort((a, b) => a - b)[Math.floor(0.95 * size.length)] || heaviest : heaviest;
    const relative = size.map((w) => Math.min(w / full, 1));
    const signed = graph.weight.some((w) => w < 0);
    // what the slider cuts: the probability or, without one, the weight relative to the largest
    const strength = graph.probability ?? size.map((w) => w / heaviest);
    const weakest = strength.reduce((a, b) => Math.min(a, b), 1);
    // Looks: sign, and some degrees of opacity and of width, in the order in which they are drawn, the surest last.
    const fade = (e) => (graph.probability && weakest < 1 ? (strength[e] - weakest) / (1 - weakest) : 1);
    const fades = edges.map((e) => Math.round(FADES * fade(e)) / FADES);
    const widths = relative.map((w) => Math.ceil(WIDTHS * w) / WIDTHS);
    const opacity = fades.map((f) => (graph.probability ? 0.15 + 0.85 * f : 0.85));
    const look = edges.map((e) => 2 * (FADES * fades[e] * (WIDTHS + 1) + WIDTHS * widths[e]) + (graph.weight[e] < 0 ? 1 : 0));
    const byStyle = (a, b) => look[a] - look[b];
    const incident = graph.names.map(() => []);
    for (const e of edges) {
      incident[graph.source[e]].push(e);
      incident[graph.target[e]].push(e);
    }
    const degree = incident.map((list) => list.reduce((sum, e) => sum + relative[e], 0));
    const largest = degree.reduce((a, b) => Math.max(a, b), 0) || 1;
    const byDegree = graph.names.map((_, i) => i).sort((i, j) => degree[j] - degree[i] || i - j);
    const colour = (i) => (graph.group ? GROUPS[graph.group[i] % GROUPS.length] : NODE);
    const paint = (e) => (graph.weight[e] < 0 ? NEGATIVE : POSITIVE);
    const neighbouring = (i) => incident[i].filter((e) => strength[e] >= threshold);
    const other = (e, i) => (graph.source[e] === i ? graph.target[e] : graph.source[e]);

    let mode = "graph";
    let threshold = 0;
    let shown = edges;
    let chosen = -1; // the node whose neighbours are listed
    let hovered = -1;
    let found = new Set(); // nodes that the search found
    let scheduled = false;
    let moving = false;
    let rest = 0; // the timer of its end
    const touched = { graph: false, matrix: false }; // until the user zooms or pans, a new size fits the view again

    // --- the page ----------------------------------------------------------------------------------------------------

    const canvas = element("canvas", { tabIndex: 0 });
    const context = canvas.getContext("2d");
    canvas.setAttribute("role", "img");
    const tip = element("div", { className: "tip", hidden: true });
    const nothing = element("p", { className: "nothing", hidden: true });
    const button = (text, title, action) => {
      const made = element("button", { type: "button", textContent: text, title, onclick: action });
      made.setAttribute("aria-label", title);
      return made;
    };
    const modes = {
      graph: button("Graph", "Show the graph", () => show("graph")),
      matrix: button("Matrix", "Show the matrix of weights", () => show("matrix")),
    };
    const zooms = element(
      "div",
      { className: "zooms" },
      button("+", "Zoom in", () => zoom(1.4)),
      button("−", "Zoom out", () => zoom(1 / 1.4)),
      button("⤢", "Show all", () => fit()),
    );
    const stage = element("div", { className: "stage" }, canvas, zooms, tip, nothing);
    const status = element("p", { className: "status" });
    status.setAttribute("role", "status");
    const least = Math.min(Math.floor(100 * weakest), 99);
    const slider = element("input", { type: "range", min: graph.probability ? least : 0, max: 100, step: 1 });
    slider.value = slider.min;
    const reading = element("output");
    const search = element("input", { type: "search", placeholder: "name of a node", autocomplete: "off" });
    search.spellcheck = false;
    const key = element("ul", { className: "legend" });
    const list = element("div", { className: "list" });
    list.setAttribute("aria-live", "polite");
    const panel = element(
      "div",
      { className: "panel" },
      element("h1", {}, graph.title),
      status,
      element("div", { className: "buttons modes" }, modes.graph, modes.matrix),
      element(
        "label",
        {},
        element("span", {}, graph.probability ? "Probability at least " : "Weight, of the largest, at least ", reading),
        slider,
      ),
      key,
      element("label", {}, element("span", {}, "Find"), search),
      list,
      element(
        "div",
        { className: "buttons downloads" },
        button("Edges (CSV)", "Download the edges that are shown as CSV", saveEdges),
        button("Picture (PNG)", "Download what is shown as PNG", savePicture),
      ),
    );
    root.classList.add("explorer");
    root.replaceChildren(stage, panel);

    // What colours, widths and fading mean, in the graph or in the matrix.
    function keyRows() {
      const line = (style, text) => {
        const swatch = element("i", { className: "line" });
        swatch.style.cssText = style;
        return element("li", {}, swatch, text);
      };
      const most = number(full);
      const more = full < heaviest ? " or more" : "";
      const rows = [];
      if (edges.length && mode === "graph") {
        rows.push(line(`height: 4px; background: ${POSITIVE}`, signed ? "positive weight" : "edge"));
        if (signed) rows.push(line(`height: 4px; background: ${NEGATIVE}`, "negative weight"));
        const wedge = "height: 6px; border-radius: 0; clip-path: polygon(0 45%, 100% 0, 100% 100%, 0 55%)";
        rows.push(line(`${wedge}; background: #566070`, `width: weight up to ${most}${more}`));
        if (graph.probability) {
          const gradient = "linear-gradient(to right, #56607026, #566070)";
          rows.push(line(`height: 4px; background: ${gradient}`, `probability ${slider.min} % to 100 %`));
        }
      } else if (edges.length) {
        const ends = `${signed ? `${NEGATIVE}, ` : ""}#ffffff, ${POSITIVE}`;
        const text = signed ? `weight −${most} to ${most}${more}, white is 0` : `weight 0 to ${most}${more}`;
        rows.push(line(`width: 56px; height: 10px; background: linear-gradient(to right, ${ends})`, text));
        if (graph.probability) rows.push(element("li", { className: "remark" }, "paler where it is less probable"));
      }
      if (graph.group) {
        graph.groups.forEach((name, g) => {
          const swatch = element("i", { className: "dot" });
          swatch.style.background = GROUPS[g % GROUPS.length];
          rows.push(element("li", {}, swatch, name));
        });
      }
      return rows;
    }

    // --- view: screen = k world + (x, y) -----------------------------------------------------------------------------

    const layout = new ForceLayout(
      n,
      graph.source,
      graph.target,
      edges.map((e) => relative[e] * strength[e] + 1e-3),
    );
    if (before) layout.keepPlaces(before);
    layout.run(n <= 700 ? 300 : 30); // what is left is seen
    const views = { graph: { k: 1, x: 0, y: 0 }, matrix: { k: 1, x: 0, y: 0 } };
    const fitted = {}; // the k at which all is seen
    const order = graph.names.map((_, i) => i);
    if (graph.group) order.sort((i, j) => graph.group[i] - graph.group[j] || i - j);
    const rank = [];
    order.forEach((i, row) => (rank[i] = row));
    const width = () => canvas.clientWidth;
    const height = () => canvas.clientHeight;
    const toScreen = (i) => {
      const { k, x, y } = views.graph;
      return [k * layout.x[i] + x, k * layout.y[i] + y];
    };

    function extent() {
      if (mode === "matrix") return [0, 0, n, n];
      const low = (a) => a.reduce((p, q) => Math.min(p, q), Infinity);
      const high = (a) => a.reduce((p, q) => Math.max(p, q), -Infinity);
      return [low(layout.x), low(layout.y), high(layout.x), high(layout.y)];
    }

    function fit() {
      const [left, top, right, bottom] = extent();
      const strip = mode === "matrix" ? margin() : 0;
      const border = mode === "matrix" ? 14 : 42;
      const free = [width() - strip - 2 * border, height() - strip - 2 * border];
      const limit = mode === "matrix" ? 60 : 6;
      const k = clamp(Math.min(free[0] / (right - left || 1), free[1] / (bottom - top || 1)), 1e-3, limit);
      views[mode] = {
        k,
        x: strip + border + free[0] / 2 - (k * (left + right)) / 2,
        y: strip + border + free[1] / 2 - (k * (top + bottom)) / 2,
      };
      fitted[mode] = k;
      touched[mode] = false;
      draw();
    }

    function zoom(factor, at = [width() / 2, height() / 2]) {
      const view = views[mode];
      const k = clamp(view.k * factor, fitted[mode] / 4, fitted[mode] * 60);
      view.x = at[0] - (k / view.k) * (at[0] - view.x);
      view.y = at[1] - (k / view.k) * (at[1] - view.y);
      view.k = k;
      touched[mode] = true;
      move();
    }

    function pan(dx, dy) {
      views[mode].x += dx;
      views[mode].y += dy;
      touched[mode] = true;
      move();
    }

    // --- drawing -----------------------------------------------------------------------------------------------------

    function draw() {
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        drawNow();
        if (!layout.rests) {
          layout.run(clamp(1e6 / n ** 2, 1, 4));
          if (!touched.graph && mode === "graph") fit();
          move();
        }
      });
    }

    function move() {
      moving = true;
      clearTimeout(rest);
      rest = setTimeout(() => {
        moving = false;
        draw();
      }, 150);
      draw();
    }

    function drawNow() {
      const ratio = window.devicePixelRatio || 1;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      drawOn(context);
    }

    function drawOn(target) {
      target.fillStyle = "#ffffff";
      target.fillRect(0, 0, width(), height());
      target.font = FONT;
      if (mode === "graph") drawGraph(target);
      else drawMatrix(target);
    }

    // Lines and nodes grow with the zoom, but more slowly.
    const growth = () => clamp(Math.sqrt(views.graph.k / fitted.graph), 0.6, 3);
    const room = () => clamp(Math.sqrt((width() * height()) / n / 7000), 0.6, 1.25); // less where nodes are many
    let scale = 1; // growth x room, of this frame
    const radius = (i) => scale * (4 + 4 * Math.sqrt(degree[i] / largest));
    // thinner where edges are many: they can be told apart, and lines below a pixel are drawn much faster
    const crowd = () => clamp(Math.sqrt(600 / (shown.length + 1)), 0.35, 1);
    const thickness = (e) => scale * crowd() * (0.6 + 3.6 * widths[e]);

    function drawGraph(target) {
      scale = growth() * room();
      const focus = hovered >= 0 ? hovered : chosen;
      const close = new Set([focus]);
      drawEdges(target, moving ? shown.slice(-MOVING) : shown, focus < 0 ? 1 : 0.12);
      const near = focus < 0 ? [] : neighbouring(focus).sort(byStyle);
      for (const e of near) close.add(other(e, focus));
      drawEdges(target, near, 1);
      for (let i = 0; i < n; i++) drawNode(target, i, focus < 0 || close.has(i) ? 1 : 0.3);
      target.globalAlpha = 1;
      drawNames(target, focus < 0 ? [] : [...close], focus);
    }

    // Edges of one look, of which there are few, are one path: thousands of strokes would not move smoothly. `some` are in
    // the order of their looks.
    function drawEdges(target, some, alpha) {
      const { k, x, y } = views.graph;
      let last = -1;
      let count = 0;
      for (const e of some) {
        if (look[e] !== last || ++count > LONGEST_PATH) {
          if (last >= 0) target.stroke();
          last = look[e];
          count = 0;
          target.globalAlpha = alpha * opacity[e];
          target.strokeStyle = paint(e);
          target.lineWidth = thickness(e);
          target.beginPath();
        }
        const i = graph.source[e];
        const j = graph.target[e];
        target.moveTo(k * layout.x[i] + x, k * layout.y[i] + y);
        target.lineTo(k * layout.x[j] + x, k * layout.y[j] + y);
      }
      if (last >= 0) target.stroke();
    }

    function drawNode(target, i, alpha) {
      const [x, y] = toScreen(i);
      const ring = i === chosen ? 4 : found.has(i) ? 3 : 0;
      target.globalAlpha = Math.max(alpha, ring ? 1 : 0);
      target.beginPath();
      target.arc(x, y, radius(i) + ring, 0, 7);
      target.fillStyle = ring ? CHOSEN : "#ffffff";
      if (ring) target.fill();
      target.beginPath();
      target.arc(x, y, radius(i), 0, 7);
      target.fillStyle = colour(i);
      target.fill();
      target.strokeStyle = "#ffffff";
      target.lineWidth = 1.2;
      target.stroke();
    }

    // Names of the nodes that matter most first, as long as they do not cover each other.
    const lengths = new Map();
    function drawNames(target, close, focus) {
      const first = [...new Set([focus, chosen, ...found, ...close])].filter((i) => i >= 0);
      const boxes = [];
      target.textAlign = "center";
      target.textBaseline = "alphabetic";
      target.lineJoin = "round";
      for (const i of focus >= 0 ? first : new Set([...first, ...byDegree])) {
        const [x, y] = toScreen(i);
        if (x < -50 || y < -20 || x > width() + 50 || y > height() + 20) continue;
        const name = shorten(graph.names[i]);
        if (!lengths.has(i)) lengths.set(i, target.measureText(name).width);
        const half = lengths.get(i) / 2 + 2;
        const base = y - radius(i) - 4;
        const gap = focus < 0 && n > 60 ? 10 : 0; // many names hide what they name
        const box = [x - half - gap, base - 11 - gap, x + half + gap, base + 3 + gap];
        const covers = (b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3];
        if (i !== focus && boxes.some(covers)) continue;
        boxes.push(box);
        target.lineWidth = 3.5;
        target.strokeStyle = "#ffffffd9";
        target.strokeText(name, x, base);
        target.fillStyle = INK;
        target.fillText(name, x, base);
      }
    }

    // --- matrix ------------------------------------------------------------------------------------------------------

    const tiles = element("canvas", { width: n, height: n });
    let stale = true; // the tiles show another threshold

    function paintTiles() {
      const target = tiles.getContext("2d");
      const image = target.createImageData(n, n);
      image.data.fill(255);
      const set = (row, column, rgb) => image.data.set(rgb, 4 * (n * row + column));
      for (let i = 0; i < n; i++) set(i, i, [229, 232, 236]);
      for (const e of shown) {
        const depth = opacity[e] * (0.15 + 0.85 * Math.sqrt(relative[e]));
        const rgb = [1, 3, 5].map((k) => 255 - depth * (255 - parseInt(paint(e).slice(k, k + 2), 16)));
        set(rank[graph.source[e]], rank[graph.target[e]], rgb);
        set(rank[graph.target[e]], rank[graph.source[e]], rgb);
      }
      target.putImageData(image, 0, 0);
      stale = false;
    }

    // The room that names need above and to the left of the matrix.
    function margin() {
      context.font = FONT;
      const longest = graph.names.reduce((most, name) => Math.max(most, context.measureText(shorten(name)).width), 0);
      return Math.min(longest + 8, 0.3 * Math.min(width(), height()));
    }

    function drawMatrix(target) {
      if (stale) paintTiles();
      const { k, x, y } = views.matrix;
      target.globalAlpha = 1;
      target.imageSmoothingEnabled = k < 1;
      target.drawImage(tiles, x, y, k * n, k * n);
      target.strokeStyle = "#c3c9d1";
      target.lineWidth = 1;
      target.strokeRect(x - 0.5, y - 0.5, k * n + 1, k * n + 1);
      if (graph.group) drawBorders(target);
      if (chosen >= 0) {
        target.strokeStyle = CHOSEN;
        target.lineWidth = 2;
        target.strokeRect(x, y + k * rank[chosen], k * n, k);
        target.strokeRect(x + k * rank[chosen], y, k, k * n);
      }
      if (k >= 11) drawMargins(target);
    }

    function drawBorders(target) {
      const { k, x, y } = views.matrix;
      target.beginPath();
      for (let row = 1; row < n; row++) {
        if (graph.group[order[row]] === graph.group[order[row - 1]]) continue;
        target.moveTo(x, y + k * row);
        target.lineTo(x + k * n, y + k * row);
        target.moveTo(x + k * row, y);
        target.lineTo(x + k * row, y + k * n);
      }
      target.stroke();
    }

    // Names stay in sight at the left and at the top, wherever the matrix is.
    function drawMargins(target) {
      const { k, x, y } = views.matrix;
      const strip = margin();
      const left = Math.max(x, strip);
      const top = Math.max(y, strip);
      const write = (i, across, down, turned) => {
        target.save();
        target.translate(across, down);
        if (turned) target.rotate(-Math.PI / 2);
        target.fillStyle = i === chosen ? "#9a4f00" : INK;
        target.fillText(shorten(graph.names[i]), turned ? 5 : -5, 0);
        target.restore();
      };
      target.textBaseline = "middle";
      target.fillStyle = "#ffffffe6";
      target.fillRect(left - strip, top, strip, height());
      target.fillRect(left, top - strip, width(), strip);
      target.fillRect(left - strip, top - strip, strip, strip);
      order.forEach((i, row) => {
        const middle = k * (row + 0.5);
        target.textAlign = "right";
        if (y + middle > top) write(i, left, y + middle, false);
        target.textAlign = "left";
        if (x + middle > left) write(i, x + middle, top, true);
      });
    }

    // --- what is under the pointer -----------------------------------------------------------------------------------

    function nodeAt(x, y) {
      let best = -1;
      let nearest = NEAR;
      for (let i = 0; i < n; i++) {
        const [px, py] = toScreen(i);
        const distance = Math.hypot(px - x, py - y) - radius(i) / 2;
        if (distance < nearest) [best, nearest] = [i, distance];
      }
      return best;
    }

    function edgeAt(x, y) {
      for (const e of shown) {
        const [ax, ay] = toScreen(graph.source[e]);
        const [bx, by] = toScreen(graph.target[e]);
        const [dx, dy] = [bx - ax, by - ay];
        const t = clamp(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1), 0, 1);
        if (Math.hypot(ax + t * dx - x, ay + t * dy - y) < 1 + thickness(e) / 2) return e;
      }
      return -1;
    }

    function cellAt(x, y) {
      const view = views.matrix;
      const row = Math.floor((y - view.y) / view.k);
      const column = Math.floor((x - view.x) / view.k);
      return row >= 0 && column >= 0 && row < n && column < n ? [order[row], order[column]] : null;
    }

    function describe(e) {
      const ends = `${graph.names[graph.source[e]]} – ${graph.names[graph.target[e]]}`;
      return `${ends}\n${facts(e)}`;
    }

    const facts = (e) =>
      `weight ${number(graph.weight[e])}${graph.probability ? `, probability ${percent(graph.probability[e])}` : ""}`;

    function whatIsAt(x, y) {
      if (mode === "matrix") {
        const cell = cellAt(x, y);
        if (!cell) return "";
        const e = neighbouring(cell[0]).find((e) => other(e, cell[0]) === cell[1]);
        if (e !== undefined) return describe(e);
        return cell[0] === cell[1] ? graph.names[cell[0]] : `${graph.names[cell[0]]} – ${graph.names[cell[1]]}\nno edge`;
      }
      if (hovered >= 0) return graph.names[hovered];
      const e = edgeAt(x, y);
      return e >= 0 ? describe(e) : "";
    }

    function point(x, y) {
      const before = hovered;
      hovered = mode === "graph" ? nodeAt(x, y) : -1;
      const text = whatIsAt(x, y);
      tip.hidden = !text;
      tip.textContent = text;
      const left = Math.min(x + 14, width() - tip.offsetWidth - 6);
      tip.style.transform = `translate(${Math.max(left, 4)}px, ${Math.min(y + 14, height() - tip.offsetHeight - 6)}px)`;
      canvas.style.cursor = text ? "pointer" : "grab";
      if (before !== hovered) draw();
    }

    // --- hands -------------------------------------------------------------------------------------------------------

    const pointers = new Map(); // those that are down: where each is
    let start = null; // where the first one came down, and what is in it

    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };

    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const at = place(event);
      pointers.set(event.pointerId, at);
      if (pointers.size === 1) start = { at, node: mode === "graph" ? nodeAt(...at) : -1, moved: false };
      else start = { ...start, node: -1, moved: true }; // two fingers zoom
      layout.held = -1;
      tip.hidden = true;
    });

    canvas.addEventListener("pointermove", (event) => {
      const at = place(event);
      const before = pointers.get(event.pointerId);
      if (!before) return point(...at);
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
      pointers.set(event.pointerId, at);
      if (others.length) return pinch(others[0], before, at);
      start.moved ||= Math.hypot(at[0] - start.at[0], at[1] - start.at[1]) > CLICK;
      if (!start.moved) return undefined;
      if (start.node < 0) return pan(at[0] - before[0], at[1] - before[1]);
      return drag(start.node, at);
    });

    const release = (event) => {
      if (!pointers.delete(event.pointerId) || pointers.size) return;
      layout.held = -1;
      if (event.type === "pointerup" && !start.moved) click(...place(event));
      if (event.pointerType === "mouse") point(...place(event));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => {
      tip.hidden = true;
      hovered = -1;
      draw();
    });

    function drag(i, [x, y]) {
      const view = views.graph;
      layout.held = i;
      layout.x[i] = (x - view.x) / view.k;
      layout.y[i] = (y - view.y) / view.k;
      layout.vx[i] = layout.vy[i] = 0;
      layout.heat = 0.15; // the neighbours follow
      touched[mode] = true;
      move();
    }

    function pinch(fixed, before, after) {
      const distance = (a) => Math.hypot(a[0] - fixed[0], a[1] - fixed[1]);
      const middle = (a) => [(a[0] + fixed[0]) / 2, (a[1] + fixed[1]) / 2];
      pan(middle(after)[0] - middle(before)[0], middle(after)[1] - middle(before)[1]);
      zoom(distance(after) / Math.max(distance(before), 1), middle(after));
    }

    function click(x, y) {
      const cell = mode === "matrix" ? cellAt(x, y) : null;
      const i = mode === "matrix" ? (cell ? cell[0] : -1) : nodeAt(x, y);
      choose(i === chosen ? -1 : i);
    }

    canvas.addEventListener(
      "wheel",
      (event) => {
        // within a page that scrolls, the wheel does so until the drawing was clicked
        const scrolls = document.documentElement.scrollHeight > innerHeight + 1;
        if (scrolls && document.activeElement !== canvas && !event.ctrlKey) return;
        event.preventDefault();
        zoom(Math.exp(-clamp(event.deltaY, -120, 120) / 300), place(event));
      },
      { passive: false },
    );

    const KEYS = {
      ArrowLeft: () => nudge(-1, 0),
      ArrowRight: () => nudge(1, 0),
      ArrowUp: () => nudge(0, -1),
      ArrowDown: () => nudge(0, 1),
      "+": () => zoom(1.25),
      "=": () => zoom(1.25),
      "-": () => zoom(0.8),
      0: () => fit(),
      Escape: () => choose(-1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!KEYS[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      KEYS[event.key]();
    });

    // Arrows move the chosen node; without one, or in the matrix, what is seen.
    function nudge(dx, dy) {
      if (chosen < 0 || mode === "matrix") return pan(-30 * dx, -30 * dy);
      const [x, y] = toScreen(chosen);
      drag(chosen, [x + 10 * dx, y + 10 * dy]);
      layout.held = -1;
      return undefined;
    }

    // --- panel -------------------------------------------------------------------------------------------------------

    function show(name) {
      mode = name;
      hovered = -1;
      for (const [key, made] of Object.entries(modes)) made.setAttribute("aria-pressed", key === name);
      key.replaceChildren(...keyRows());
      if (!touched[name]) fit();
      say();
      draw();
    }

    slider.addEventListener("input", cut);
    function cut() {
      threshold = Number(slider.value) / 100;
      shown = edges.filter((e) => strength[e] >= threshold);
      shown.sort(byStyle);
      stale = true;
      reading.textContent = percent(threshold);
      slider.setAttribute("aria-valuetext", percent(threshold));
      say();
      list.replaceChildren(...neighbours());
      draw();
    }

    function say() {
      const part = shown.length < edges.length ? `${shown.length.toLocaleString("en")} of ` : "";
      status.textContent = `${count(n, "node")}, ${part}${count(edges.length, "edge")}`;
      nothing.hidden = shown.length > 0;
      nothing.textContent = edges.length ? "No edge is that strong: move the slider to the left." : "This graph has no edges.";
      const help = "Arrow keys move what is seen or, if a node is chosen, that node; plus and minus zoom, 0 shows all.";
      canvas.setAttribute("aria-label", `${mode === "graph" ? "Graph" : "Matrix"}: ${status.textContent}. ${help}`);
    }

    search.addEventListener("input", () => {
      const text = search.value.trim().toLowerCase();
      const hits = text ? byDegree.filter((i) => graph.names[i].toLowerCase().includes(text)) : [];
      hits.sort((i, j) => graph.names[i].length - graph.names[j].length); // an exact match comes first
      found = new Set(hits);
      list.replaceChildren(...(text ? matches(hits) : neighbours()));
      draw();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && found.size) choose([...found][0]);
    });

    function matches(hits) {
      if (!hits.length) return [element("p", {}, "No node has such a name.")];
      const heading = element("h2", {}, count(hits.length, "node"));
      const items = hits.slice(0, 50).map((i) => element("li", {}, chip(i)));
      return [heading, element("ul", {}, ...items)];
    }

    function chip(i) {
      const dot = element("i", { className: "dot" });
      dot.style.background = colour(i);
      const made = element("button", { type: "button", className: "node", onclick: () => choose(i) });
      made.append(dot, graph.names[i]);
      return made;
    }

    function choose(i) {
      chosen = i;
      found = new Set();
      search.value = "";
      list.replaceChildren(...neighbours());
      list.scrollTop = 0;
      if (i >= 0) reveal(i);
      draw();
    }

    // Bring a node into sight that was zoomed out of it.
    function reveal(i) {
      if (mode !== "graph") return;
      const [x, y] = toScreen(i);
      if (x < 20 || y < 20 || x > width() - 20 || y > height() - 20) pan(width() / 2 - x, height() / 2 - y);
    }

    function neighbours() {
      if (chosen < 0) return [element("p", { className: "hint" }, "Click a node, or find it by name, to see its neighbours.")];
      const mine = neighbouring(chosen).sort((a, b) => size[b] - size[a]);
      const close = button("×", "Close", () => choose(-1));
      close.className = "close";
      const where = graph.group ? `${graph.groups[graph.group[chosen]]}; ` : "";
      const heading = element("h2", {}, graph.names[chosen], close);
      const total = element("p", {}, `${where}${count(mine.length, "neighbour")}`);
      if (!mine.length) return [heading, total];
      const titles = ["neighbour", "weight", ...(graph.probability ? ["probability"] : [])];
      const rows = mine.map((e) => {
        const cells = [number(graph.weight[e]), ...(graph.probability ? [percent(graph.probability[e])] : [])];
        const first = element("td", {}, chip(other(e, chosen)));
        const made = element("tr", {}, first, ...cells.map((text) => element("td", {}, text)));
        if (graph.weight[e] < 0) made.className = "negative";
        return made;
      });
      const head = element("tr", {}, ...titles.map((text) => element("th", { scope: "col" }, text)));
      return [heading, total, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))];
    }

    // --- downloads ---------------------------------------------------------------------------------------------------

    function saveEdges() {
      const header = ["source", "target", "weight", ...(graph.probability ? ["probability"] : [])];
      const kept = edges.filter((e) => strength[e] >= threshold);
      const rows = kept.map((e) => [
        quote(graph.names[graph.source[e]]),
        quote(graph.names[graph.target[e]]),
        graph.weight[e],
        ...(graph.probability ? [graph.probability[e]] : []),
      ]);
      const text = [header, ...rows].map((row) => `${row.join(",")}\n`).join("");
      offer(`${slug(graph.title)}.csv`, new Blob([text], { type: "text/csv" }));
    }

    function savePicture() {
      const scale = 2;
      const made = element("canvas", { width: scale * width(), height: scale * height() });
      const target = made.getContext("2d");
      target.scale(scale, scale);
      drawOn(target);
      if (mode === "graph") drawKey(target);
      made.toBlob((blob) => offer(`${slug(graph.title)}.png`, blob));
    }

    // Signs and groups, in the corner of a picture.
    function drawKey(target) {
      const rows = signed ? [[POSITIVE, "positive weight"], [NEGATIVE, "negative weight"]] : [];
      target.textAlign = "left";
      target.textBaseline = "middle";
      [...rows, ...(graph.groups ?? []).map((name, g) => [GROUPS[g % GROUPS.length], name])].forEach(([shade, text], row) => {
        const y = 16 + 18 * row;
        target.fillStyle = shade;
        target.beginPath();
        if (row < rows.length) target.rect(8, y - 2, 16, 4);
        else target.arc(16, y, 5, 0, 7);
        target.fill();
        target.fillStyle = INK;
        target.fillText(shorten(text), 28, y);
      });
    }

    // --- start -------------------------------------------------------------------------------------------------------

    new ResizeObserver(() => {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(width() * ratio);
      canvas.height = Math.round(height() * ratio);
      if (!touched[mode]) fit();
      drawNow(); // a new size empties the canvas
    }).observe(canvas);
    show("graph");
    cut();
    return { layout, views, drawNow, toScreen };
  };
})();
