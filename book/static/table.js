"use strict";

// Reading a table out of the text of a CSV file, with a message for whatever keeps a column from being a node.

const MIN_ROWS = 10;
const MIN_COLUMNS = 3;
const MAX_COLUMNS = 2000; // of a file
const MISSING = /^(|na|nan|n\/a|#n\/a|null|none|-)$/i;
const DECIMAL_COMMA = /^[-+]?\d*,\d+(e[-+]?\d+)?$/i;

// The separator that the first line has most of.
function findSeparator(text) {
  const line = text.slice(0, text.search(/[\r\n]|$/)).replace(/"[^"]*"/g, "");
  const counts = [",", ";", "\t"].map((mark) => [line.split(mark).length, mark]);
  return counts.sort((a, b) => b[0] - a[0])[0][1];
}

// The cells of every line that is not blank; quoted cells may contain separators, line breaks and doubled quotes.
function splitCells(text, separator) {
  const rows = [];
  let row = [];
  let at = 0;
  const finish = () => {
    if (row.length > 1 || row[0].trim()) rows.push(row);
    row = [];
  };
  while (at < text.length) {
    let end = at;
    if (text[at] === '"') {
      let cell = "";
      do {
        const close = text.indexOf('"', end + 1);
        if (close < 0) throw new Error(`A quotation mark in row ${rows.length + 1} is never closed.`);
        cell += (cell || end > at ? '"' : "") + text.slice(end + 1, close);
        end = close + 1;
      } while (text[end] === '"');
      row.push(cell);
    } else {
      while (end < text.length && text[end] !== separator && text[end] !== "\n" && text[end] !== "\r") end++;
      row.push(text.slice(at, end));
    }
    if (text[end] !== separator) {
      if (text[end] === "\r" && text[end + 1] === "\n") end++;
      finish();
    } else if (end + 1 === text.length) row.push(""); // the last cell is empty
    at = end + 1;
  }
  if (row.length) finish();
  return rows;
}

// A number, NaN for a missing value, null for text.
function readNumber(cell, separator) {
  const text = cell.trim();
  if (MISSING.test(text)) return NaN;
  const value = Number(separator !== "," && DECIMAL_COMMA.test(text) ? text.replace(",", ".") : text);
  return Number.isFinite(value) ? value : null;
}

// Two columns of one name are told apart as pandas does it: a, a.1, a.2.
function distinguish(names) {
  const seen = new Map();
  return names.map((name) => {
    const k = seen.get(name) ?? 0;
    seen.set(name, k + 1);
    return k ? `${name}.${k}` : name;
  });
}

// {name, values, missing, problem} of one column; `first` is the number of the first row of values in the file.
function readColumn(rows, k, name, separator, first) {
  const values = new Float64Array(rows.length);
  for (let i = 0; i < rows.length; i++) {
    const value = readNumber(rows[i][k], separator);
    if (value === null) {
      return { name, missing: 0, problem: `text in row ${first + i}, “${rows[i][k].trim().slice(0, 30)}”` };
    }
    values[i] = value;
  }
  const known = values.filter((x) => !Number.isNaN(x));
  const missing = values.length - known.length;
  let problem = "";
  if (known.length < MIN_ROWS) problem = `${known.length} values, and ${MIN_ROWS} are needed`;
  else if (known.every((x) => x === known[0])) problem = "the same value in all rows";
  return { name, values, missing, problem };
}

// {n, columns, separator, header, decimal}; an Error says what is wrong with the file as a whole.
function readTable(text) {
  if (text.includes("\0")) throw new Error("This is not a text file: save the table as CSV first.");
  const body = text.replace(/^\uFEFF/, "");
  if (!body.trim()) throw new Error("The file is empty.");
  const separator = findSeparator(body);
  const cells = splitCells(body, separator);
  const width = cells[0].length;
  if (width > MAX_COLUMNS) throw new Error(`The file has ${width} columns: this page reads up to ${MAX_COLUMNS}.`);
  const odd = cells.findIndex((row) => row.length !== width);
  if (odd >= 0) throw new Error(`Row ${odd + 1} has ${cells[odd].length} cells, and the first row has ${width}: the table is not complete.`);
  const header = cells[0].some((cell) => readNumber(cell, separator) === null);
  const rows = header ? cells.slice(1) : cells;
  if (rows.length < MIN_ROWS) {
    throw new Error(`The file has ${rows.length} row${rows.length === 1 ? "" : "s"} of values: too few to tell a graph. Rows are samples; at least ${MIN_ROWS} are needed, and hundreds are better.`);
  }
  const names = header ? distinguish(cells[0].map((cell, k) => cell.trim() || `Unnamed: ${k}`)) : cells[0].map((_, k) => String(k));
  const columns = names.map((name, k) => readColumn(rows, k, name, separator, header ? 2 : 1));
  const usable = columns.filter((column) => !column.problem).length;
  if (usable < MIN_COLUMNS) {
    const worst = columns.find((column) => column.problem);
    const why = worst ? ` “${worst.name}”, for one, has ${worst.problem}.` : "";
    throw new Error(`${usable} of ${width} columns can be used: at least ${MIN_COLUMNS} columns of numbers that vary are needed.${why}`);
  }
  const decimal = separator !== "," && rows.some((row) => row.some((cell) => DECIMAL_COMMA.test(cell.trim()))) ? "," : ".";
  return { n: rows.length, columns, separator, header, decimal };
}
