"use strict";

// The page "Try it": a table becomes a graph, in a worker of this browser. TRIAL has the worker, its network and the
// examples; showGraph draws.
(() => {
  const MAX_NODES = 200;
  const MAX_BYTES = 15e6;
  const KINDS = { uint8: Uint8Array, float32: Float32Array };

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const button = (text, action) => element("button", { type: "button", textContent: text, onclick: action });
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer;
  const decode = (packed) => {
    const [[kind, text]] = Object.entries(packed);
    return new KINDS[kind](bytes(text));
  };

  // --- worker --------------------------------------------------------------------------------------------------------

  let worker = null;
  let current = 0; // the task whose answers count
  const listeners = {};

  function ask(task, message = {}) {
    if (!worker) {
      worker = new Worker(URL.createObjectURL(new Blob([TRIAL.worker], { type: "text/javascript" })));
      const parameters = Object.entries(TRIAL.network.parameters).map(([name, text]) => [name, decode({ float32: text })]);
      worker.postMessage({ task: "start", network: { ...TRIAL.network, parameters: Object.fromEntries(parameters) } });
      worker.onmessage = ({ data }) => data.id === current && listeners[data.task](data);
      worker.onerror = (event) => listeners.failed({ message: event.message });
    }
    current += 1;
    worker.postMessage({ id: current, task, ...message });
  }

  // --- the page ------------------------------------------------------------------------------------------------------

  const root = document.querySelector("#try");
  const input = element("input", { type: "file", accept: ".csv,.tsv,.txt,text/csv", id: "try-file" });
  const drop = element(
    "label",
    { className: "drop" },
    element("strong", {}, "Drop a CSV file here, or choose one"),
    element("span", {}, "one row per sample, one column per node; nothing is uploaded"),
    input,
  );
  const examples = element("div", { className: "choices" }, "Or take an example:");
  TRIAL.examples.forEach((example) => examples.append(button(example.title, () => learnExample(example))));
  const message = element("div", { className: "message", hidden: true });
  message.setAttribute("role", "alert");
  const settings = element("fieldset", { hidden: true });
  const box = (checked) => element("input", { type: "checkbox", checked });
  const boxes = {
    standardise: box(false),
    signed: box(true),
    selfLoops: box(true),
    minProbability: element("input", { type: "number", min: 0, max: 1, step: "any", value: 0.5 }),
  };
  let begin = () => {}; // learn what was chosen
  const go = button("Learn the graph", () => begin());
  const progress = element("progress", { max: 1, value: 0, hidden: true });
  progress.setAttribute("aria-label", "Progress");
  const result = element("div", { className: "result", hidden: true });
  root.replaceChildren(drop, examples, message, settings, progress, result);

  // One or several sentences, each in a paragraph of its own.
  function say(texts, kind = "wrong") {
    const said = [texts].flat().filter(Boolean);
    message.hidden = !said.length;
    message.className = `message ${kind}`;
    message.replaceChildren(...said.map((text) => element("p", {}, text)));
  }

  function clear() {
    say("");
    settings.hidden = progress.hidden = result.hidden = true;
  }

  listeners.failed = ({ message: text }) => {
    progress.hidden = true;
    say(file ? `${file}: ${text}` : text);
  };
  listeners.progress = ({ share }) => {
    progress.hidden = false;
    progress.value = share;
  };

  // --- files ---------------------------------------------------------------------------------------------------------

  let file = ""; // its name

  input.addEventListener("change", () => input.files.length && open(input.files[0]));
  for (const type of ["dragenter", "dragover"]) {
    root.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const type of ["dragleave", "drop"]) root.addEventListener(type, () => drop.classList.remove("over"));
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
  });

  async function open(chosen) {
    clear();
    file = chosen.name;
    input.value = ""; // the same file may be chosen again
    if (chosen.size > MAX_BYTES) {
      const size = `${Math.round(chosen.size / 1e6)} MB`;
      say(`${file} has ${size}, and this page reads up to ${MAX_BYTES / 1e6} MB. Take fewer rows or columns, or use GraphLearner in Python.`);
      return;
    }
    ask("read", { text: await chosen.text() });
  }

  listeners.read = (table) => {
    const usable = table.names.map((_, k) => k).filter((k) => !table.problems[k]);
    const bad = table.names.map((_, k) => k).filter((k) => table.problems[k]);
    const gaps = usable.filter((k) => table.gaps[k]);
    const boxes = new Map();
    const list = element("div", { className: "columns" });
    table.names.forEach((name, k) => {
      const box = element("input", { type: "checkbox", disabled: !!table.problems[k], checked: usable.indexOf(k) >= 0 && usable.indexOf(k) < MAX_NODES });
      if (!table.problems[k]) boxes.set(k, box);
      list.append(element("label", {}, box, name, element("small", {}, table.problems[k] || (table.gaps[k] ? `${table.gaps[k]} missing` : ""))));
    });
    const count = element("p", {});
    const check = () => {
      const k = [...boxes.values()].filter((box) => box.checked).length;
      const limit = `${k} columns are chosen: this page takes up to ${MAX_NODES}, GraphLearner in Python takes more.`;
      go.disabled = k < 3 || k > MAX_NODES;
      count.textContent = k > MAX_NODES ? limit : `${k} of ${table.names.length} columns chosen${k < 3 ? ": at least 3 are needed" : ""}.`;
    };
    const tick = (on) => {
      boxes.forEach((box) => (box.checked = on));
      check();
    };
    list.addEventListener("change", check);
    check();
    const choices = element("div", { className: "choices" }, button("All", () => tick(true)), button("None", () => tick(false)), count);
    prepare(`Columns of ${file}: the nodes of the graph`, { standardise: false }, [choices, list], () => {
      const chosen = usable.filter((k) => boxes.get(k).checked);
      const names = chosen.map((k) => table.names[k]);
      start({ title: file, names, groups: null, python: python(table, chosen) });
      ask("learn", { chosen, names, options: options() });
    });
    const said = [];
    if (bad.length) {
      const some = bad.slice(0, 3).map((k) => `“${table.names[k]}” has ${table.problems[k]}`).join("; ");
      said.push(`${bad.length} of ${table.names.length} columns cannot be used: ${some}${bad.length > 3 ? "; and so on" : ""}.`);
    }
    if (gaps.length) {
      const missing = gaps.reduce((sum, k) => sum + table.gaps[k], 0);
      said.push(`${missing} value${missing > 1 ? "s are" : " is"} missing: filled by what the rest of the rows says.`);
    }
    if (usable.length > MAX_NODES) said.push(`The first ${MAX_NODES} of ${usable.length} columns are chosen, as many as this page takes.`);
    say(said, "note");
  };

  function python(table, chosen) {
    const options = [JSON.stringify(file)];
    if (table.separator !== ",") options.push(`sep=${JSON.stringify(table.separator)}`);
    if (table.decimal !== ".") options.push(`decimal=${JSON.stringify(table.decimal)}`);
    if (!table.header) options.push("header=None");
    const part = chosen.length === table.names.length ? "" : `.iloc[:, [${chosen.join(", ")}]]`;
    return [
      "import pandas as pd",
      "from helpers import GraphLearner",
      `X = pd.read_csv(${options.join(", ")})${part}`,
      "learner = GraphLearner(OPTIONS).fit(X)",
      'learner.to_html("graph.html")',
    ];
  }

  // --- options -------------------------------------------------------------------------------------------------------

  // A fieldset with what is to be learned, the options of GraphLearner and a button.
  function prepare(legend, { standardise = false, standard = false }, parts, action) {
    boxes.standardise.checked = standardise;
    boxes.standardise.disabled = standard;
    begin = action;
    const row = (box, text) => element("label", {}, box, text);
    settings.replaceChildren(
      element("legend", {}, legend),
      ...parts,
      row(boxes.standardise, "Columns have different units: divide each by its standard deviation"),
      row(boxes.signed, "Edges may be negative: columns that vary in opposite ways, given all others"),
      row(boxes.selfLoops, "Columns may vary on their own, beside what they share with others"),
      element("label", { className: "number" }, "Edges have a probability of at least", boxes.minProbability),
      element("div", { className: "choices" }, go),
    );
    settings.hidden = false;
  }

  function options() {
    const { standardise, signed, selfLoops, minProbability } = boxes;
    if (!minProbability.validity.valid || minProbability.value === "") minProbability.value = 0.5;
    return {
      standardise: standardise.checked && !standardise.disabled,
      signed: signed.checked,
      selfLoops: selfLoops.checked,
      minProbability: Number(minProbability.value),
    };
  }

  // The options that are not GraphLearner's own, as arguments in Python.
  function given({ standardise, signed, selfLoops, minProbability }) {
    const named = [];
    if (!signed) named.push("signed=False");
    if (!selfLoops) named.push("self_loops=False");
    if (minProbability !== 0.5) named.push(`min_probability=${minProbability}`);
    if (standardise) named.push("standardise=True");
    return named.join(", ");
  }

  // --- learning ------------------------------------------------------------------------------------------------------

  let task = null; // what is being learned: title, names, groups, python and perhaps note and truth
  let begun = 0;

  function start(what) {
    task = { ...what, python: what.python.map((line) => line.replace("OPTIONS", given(options()))) };
    begun = performance.now();
    say("");
    result.hidden = true;
    progress.hidden = false;
    progress.value = 0;
  }

  function learnExample(example) {
    clear();
    file = "";
    go.disabled = false;
    const { X, y, n } = example;
    const data = { n, names: example.names, X: X && decode(X), y: y && decode(y) };
    prepare(example.title, { ...example.options, standard: !!y }, [], () => {
      start(example);
      ask("learn", { ...data, options: options() });
    });
    begin();
  }

  function describe(edges) {
    const groups = task.groups ? [...new Set(task.groups)] : undefined;
    return { title: task.title, names: task.names, group: task.groups?.map((name) => groups.indexOf(name)) ?? null, groups, ...edges };
  }

  function trueEdges(packed) {
    const W = decode(packed);
    const m = task.names.length;
    const edges = { source: [], target: [], weight: [], probability: null };
    for (let i = 0; i < m; i++) {
      for (let j = i + 1; j < m; j++) {
        if (!W[i * m + j]) continue;
        edges.source.push(i);
        edges.target.push(j);
        edges.weight.push(W[i * m + j]);
      }
    }
    return edges;
  }

  listeners.learned = ({ edges, doubts }) => {
    progress.hidden = true;
    say(doubts, "note");
    const seconds = (performance.now() - begun) / 1000;
    const drawing = element("div");
    const duration = seconds < 0.1 ? "less than 0.1 s" : `${seconds.toFixed(1)} s`;
    const negative = edges.weight.filter((w) => w < 0).length;
    const signs = negative ? ` (${negative} negative)` : "";
    const found = `${edges.weight.length} edges${signs} between ${task.names.length} nodes, learned in ${duration} in this browser.`;
    const notes = element("p", {}, task.note ? `${task.note} ${found}` : found);
    const code = task.python.join("\n");
    const copy = button("Copy", async () => {
      await navigator.clipboard.writeText(code);
      copy.textContent = "Copied";
    });
    result.replaceChildren(notes, drawing, element("h2", {}, "The same in Python"), element("pre", {}, code), copy);
    result.hidden = false;
    const shown = showGraph(drawing, describe(edges));
    if (task.truth) notes.after(compare(edges, drawing, shown));
    root.edges = edges; // for tests
  };

  // For a graph that is known: how many edges are right, and both graphs in the same places.
  function compare(edges, drawing, { layout }) {
    const truth = trueEdges(task.truth);
    const name = (e, of) => `${of.source[e]} ${of.target[e]}`;
    const known = new Set(truth.weight.map((_, e) => name(e, truth)));
    const right = edges.weight.filter((_, e) => known.has(name(e, edges))).length;
    const wrong = edges.weight.length - right;
    const text = `${right} of the ${known.size} true edges are found; ${wrong} ${wrong === 1 ? "edge is" : "edges are"} wrong.`;
    const both = { "Learned graph": edges, "True graph": truth };
    const choices = Object.entries(both).map(([title, one]) =>
      button(title, () => {
        showGraph(drawing, describe(one), layout);
        choices.forEach((choice) => choice.setAttribute("aria-pressed", choice.textContent === title));
      }),
    );
    choices.forEach((choice, k) => choice.setAttribute("aria-pressed", k === 0));
    return element("div", { className: "choices" }, text, ...choices);
  }
})();
