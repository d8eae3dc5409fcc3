"use strict";

// Beside the page: keeps the table that was read and the network, and answers. Tasks and answers:
//   {task: "start", network}                  none
//   {task: "read", text}                      {task: "read", n, names, problems, gaps, separator, header, decimal}
//   {task: "learn", chosen, names, options}   {task: "progress", share} ... {task: "learned", edges, doubts}
//   {task: "learn", X or y, n, names, options} the same, for an example: a table X (n, m), or distances y of standardised signals
// or {task: "failed", message}. `id` comes back with every answer. options: {standardise, signed, selfLoops, minProbability}

let network = null;
let table = null;

// Parameters by name, "rounds.0.tell.weight", as objects within objects, in double precision.
function unpack({ parameters, ...options }) {
  const made = { ...options };
  for (const [name, values] of Object.entries(parameters)) {
    const path = name.split(".");
    const last = path.pop();
    path.reduce((inner, key) => (inner[key] ??= {}), made)[last] = Float64Array.from(values);
  }
  made.rounds = Object.values(made.rounds);
  made.looks = Object.values(made.looks);
  return made;
}

// The chosen columns of the table, (n, m).
function gather(chosen) {
  const m = chosen.length;
  const X = new Float64Array(table.n * m);
  chosen.forEach((k, j) => table.columns[k].values.forEach((value, i) => (X[i * m + j] = value)));
  return X;
}

const TASKS = {
  start: (data) => {
    network = unpack(data.network);
  },
  read: ({ text }) => {
    table = readTable(text);
    const { n, columns, separator, header, decimal } = table;
    const of = (key) => columns.map((column) => column[key]);
    return { n, names: of("name"), problems: of("problem"), gaps: of("missing"), separator, header, decimal };
  },
  learn: ({ chosen, names, X, y, n, options }, report) => {
    const m = names.length;
    const rows = y ? null : (X ?? gather(chosen));
    const seen = y ? { S: correlations(Float64Array.from(y), m, allPairs(m)), n: n - 1 } : tableMoments(rows, m, options.standardise);
    const edges = learn(seen.S, seen.n, network, options, report);
    return { edges, doubts: findDoubts({ ...seen, X: rows, edges, names, standardise: options.standardise }) };
  },
};
const ANSWERS = { read: "read", learn: "learned" };

onmessage = ({ data }) => {
  const { id, task } = data;
  try {
    const answer = TASKS[task](data, (share) => postMessage({ id, task: "progress", share }));
    if (answer) postMessage({ id, task: ANSWERS[task], ...answer });
  } catch (error) {
    postMessage({ id, task: "failed", message: error.message });
  }
};
