"use strict";

// Algorithm 1 of the paper, primal-dual splitting (PDS), as helpers/solvers.py has it, and a figure in which a reader can
// change its constants. Half-vectors are the upper triangle of a matrix (m, m), row by row.
const Pds = {
  // D w, the degrees: (E,) -> (m,)
  degrees(w, m) {
    const d = new Float64Array(m);
    for (let i = 0, e = 0; i < m; i++) {
      for (let j = i + 1; j < m; j++, e++) {
        d[i] += w[e];
        d[j] += w[e];
      }
    }
    return d;
  },

  // D'v, the sum of the values at the ends of every pair: (m,) -> (E,)
  adjoint(v) {
    const m = v.length;
    const x = new Float64Array((m * (m - 1)) / 2);
    for (let i = 0, e = 0; i < m; i++) for (let j = i + 1; j < m; j++, e++) x[e] = v[i] + v[j];
    return x;
  },

  // 0.9 of the bound below which the iteration converges
  gamma: (m, beta) => 0.9 / (2 * beta + Math.sqrt(2 * (m - 1))),

  step(w, v, y, alpha, beta, gamma) {
    const m = v.length;
    const Dv = Pds.adjoint(v);
    const Dw = Pds.degrees(w, m);
    const p1 = w.map((x, e) => Math.max(0, x - gamma * (2 * beta * x + 2 * y[e] + Dv[e]))); // Steps 3 and 5
    const p2 = v.map((x, i) => {
      const r2 = x + gamma * Dw[i]; // Step 4
      return (r2 - Math.sqrt(r2 * r2 + 4 * alpha * gamma)) / 2; // Step 6
    });
    // Steps 7 to 10, without what cancels in them
    const back = Pds.adjoint(v.map((x, i) => x - p2[i]));
    const Dp = Pds.degrees(p1.map((x, e) => x - w[e]), m);
    return [
      p1.map((x, e) => x + gamma * (2 * beta * (w[e] - x) + back[e])),
      p2.map((x, i) => x + gamma * Dp[i]),
    ];
  },

  // The iterates w^(1), ..., w^(T), negative entries set to 0, from w = v = 0
  path(y, m, alpha, beta, nIterations) {
    const gamma = Pds.gamma(m, beta);
    let w = new Float64Array(y.length);
    let v = new Float64Array(m);
    const iterates = [];
    for (let k = 0; k < nIterations; k++) {
      [w, v] = Pds.step(w, v, y, alpha, beta, gamma);
      iterates.push(w.map((x) => Math.max(0, x)));
    }
    return iterates;
  },

  // Eq. (4): 2 w'y - alpha 1'log(D w) + beta ||w||^2; infinite where a node is isolated
  objective(w, y, m, alpha, beta) {
    const smooth = w.reduce((sum, x, e) => sum + 2 * x * y[e] + beta * x * x, 0);
    return smooth - alpha * Pds.degrees(w, m).reduce((sum, d) => sum + Math.log(d), 0);
  },
};

for (const root of document.querySelectorAll(".pds-figure")) {
  const { y, truth, alpha, beta } = JSON.parse(root.querySelector("script").textContent);
  const m = Math.round((1 + Math.sqrt(1 + 8 * y.length)) / 2);
  const LAST = 300; // iterations that the slider reaches
  const LONG = 1500; // iterations after which the objective is taken for its minimum
  const SHADES = ["#ffffff", "#f6b48f", "#f37651", "#e13342", "#ad1759", "#701f57", "#35193e"];

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  // A slider from 0 to `steps`, of which `read` makes a number.
  const slider = (name, steps, start, read, write) => {
    const input = element("input", { type: "range", min: 0, max: steps, value: start });
    const output = element("output");
    const update = () => {
      output.textContent = write(read(Number(input.value)));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", update);
    update();
    return { box: element("label", {}, element("span", {}, `${name} = `, output), input), input, value: () => read(Number(input.value)) };
  };
  const log = (k) => 10 ** (k / 50 - 1); // 0.1 to 10 in 100 steps
  const nearest = (x) => Math.round(50 * (Math.log10(x) + 1));
  const sliders = {
    alpha: slider("α", 100, nearest(alpha), log, (x) => x.toPrecision(3)),
    beta: slider("β", 100, nearest(beta), log, (x) => x.toPrecision(3)),
    iterations: slider("iterations", LAST - 1, 29, (k) => k + 1, String),
  };
  const panel = (title) => {
    const canvas = element("canvas", { width: 520, height: 520 });
    canvas.setAttribute("role", "img");
    return { box: element("div", { className: "plot" }, title, canvas), canvas, target: canvas.getContext("2d") };
  };
  const learned = panel("learned W");
  const chart = panel("objective − minimum");
  const known = panel("true W");
  const status = element("p", { className: "reading" });
  status.setAttribute("role", "status");
  const inputs = element("div", { className: "inputs" }, ...Object.values(sliders).map((s) => s.box));
  root.append(inputs, element("div", { className: "panels" }, learned.box, known.box, chart.box), status);

  let key = "";
  let path = [];
  let heights = []; // of the objective above its minimum

  function solve() {
    const [a, b] = [sliders.alpha.value(), sliders.beta.value()];
    if (key === `${a} ${b}`) return;
    key = `${a} ${b}`;
    const all = Pds.path(y, m, a, b, LONG);
    path = all.slice(0, LAST);
    const least = Pds.objective(all[LONG - 1], y, m, a, b);
    heights = path.map((w) => Pds.objective(w, y, m, a, b) - least);
  }

  function shade(x) {
    const place = Math.min(1, Math.max(0, x)) * (SHADES.length - 1);
    const k = Math.min(SHADES.length - 2, Math.floor(place));
    const part = (text, c) => parseInt(text.slice(c, c + 2), 16);
    const mix = (c) => Math.round(part(SHADES[k], c) + (place - k) * (part(SHADES[k + 1], c) - part(SHADES[k], c)));
    return `rgb(${mix(1)}, ${mix(3)}, ${mix(5)})`;
  }

  function drawMatrix({ canvas, target }, w, most, label) {
    const cell = canvas.width / m;
    target.fillStyle = "#ffffff";
    target.fillRect(0, 0, canvas.width, canvas.height);
    for (let i = 0, e = 0; i < m; i++) {
      for (let j = i + 1; j < m; j++, e++) {
        target.fillStyle = shade(w[e] / most);
        target.fillRect(j * cell, i * cell, cell + 0.5, cell + 0.5);
        target.fillRect(i * cell, j * cell, cell + 0.5, cell + 0.5);
      }
    }
    canvas.setAttribute("aria-label", label);
  }

  function drawChart({ canvas, target }, now) {
    const [left, right, top, bottom] = [90, canvas.width - 20, 20, canvas.height - 76];
    const [low, high] = [-10, 3]; // powers of ten
    const x = (k) => left + ((right - left) * k) / LAST;
    const y = (h) => bottom - ((bottom - top) * (Math.min(high, Math.max(low, Math.log10(h))) - low)) / (high - low);
    target.fillStyle = "#ffffff";
    target.fillRect(0, 0, canvas.width, canvas.height);
    target.font = "26px system-ui, sans-serif";
    target.fillStyle = "#3c4654";
    target.strokeStyle = "#dde1e7";
    target.lineWidth = 2;
    target.beginPath();
    target.textAlign = "right";
    target.textBaseline = "middle";
    for (let power = low; power <= high; power += 3) {
      target.moveTo(left, y(10 ** power));
      target.lineTo(right, y(10 ** power));
      target.fillText(power === 0 ? "1" : `1e${power}`, left - 10, y(10 ** power));
    }
    target.stroke();
    target.textAlign = "center";
    for (const k of [0, 100, 200, 300]) target.fillText(k, Math.min(x(k), right - 14), bottom + 22);
    target.fillText("iterations", (left + right) / 2, bottom + 56);
    const line = (first, last, style) => {
      target.beginPath();
      for (let k = first; k < last; k++) if (heights[k] > 0 && heights[k] < Infinity) target.lineTo(x(k + 1), y(heights[k]));
      target.strokeStyle = style;
      target.lineWidth = 4;
      target.stroke();
    };
    line(0, LAST, "#c9ced6");
    line(0, now, "#2a78b5");
    if (heights[now - 1] < Infinity) {
      target.fillStyle = "#2a78b5";
      target.beginPath();
      target.arc(x(now), y(Math.max(heights[now - 1], 1e-300)), 8, 0, 7);
      target.fill();
    }
    canvas.setAttribute("aria-label", `Objective above its minimum after ${now} iterations: ${write(heights[now - 1])}`);
  }

  const write = (x) => (x === Infinity ? "infinite, a node is isolated" : x < 1e-10 ? "less than 1e-10" : x.toPrecision(2));

  function update() {
    solve();
    const now = sliders.iterations.value();
    const w = path[now - 1];
    const most = w.reduce((a, b) => Math.max(a, b), 0) || 1;
    const edges = w.filter((x) => x > 1e-6 * most).length;
    const square = (a) => a.reduce((sum, x) => sum + x * x, 0);
    const gmse = square(w.map((x, e) => x - truth[e])) / square(truth);
    drawMatrix(learned, w, Math.max(...truth, most), `Learned adjacency matrix, ${edges} edges`);
    drawMatrix(known, truth, Math.max(...truth, most), `True adjacency matrix, ${truth.filter((x) => x > 0).length} edges`);
    drawChart(chart, now);
    status.textContent = `${edges} of ${w.length} pairs have a weight; error against the truth (GMSE) ${gmse.toPrecision(3)}; objective above its minimum: ${write(heights[now - 1])}`;
    root.weights = w; // for tests
  }

  let scheduled = 0;
  for (const { input } of Object.values(sliders)) {
    input.addEventListener("input", () => {
      cancelAnimationFrame(scheduled);
      scheduled = requestAnimationFrame(update);
    });
  }
  update();
}
