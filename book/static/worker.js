"use strict";

// Beside the page: keeps the table that was read and the network, and answers. Tasks and answers:
//   {task: "start", network}                   none
//   {task: "read", text}                       {task: "read", n, names, problems, separator, header, decimal}
//   {task: "learn", chosen, standardise}       {task: "progress", share} ... {task: "learned", edges}
//   {task: "learn", X or S, n, standardise}    the same, for an example
// or {task: "failed", message}. `id` comes back with every answer.

const LEAST = 0.5; // probability of the edges that are kept, as in GraphLearner
let network = null;
let table = null;

function unpack({ nUpdates, parameters }) {
  const made = { nUpdates };
  for (const [name, values] of Object.entries(parameters)) {
    const path = name.split(".");
    const last = path.pop();
    path.reduce((inner, key) => (inner[key] ??= {}), made)[last] = values;
  }
  made.rounds = Object.values(made.rounds);
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
    const names = columns.map((column) => column.name);
    return { n, names, problems: columns.map((column) => column.problem), separator, header, decimal };
  },
  learn: ({ chosen, X, S, n, standardise }, report) => {
    const rows = chosen ? table.n : n;
    const values = chosen ? gather(chosen) : X;
    const moments = S ? Float64Array.from(S) : centredMoments(values, rows, values.length / rows, standardise);
    return { edges: learn(moments, S ? n : rows - 1, network, LEAST, report) };
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
