"use strict";

// Reasons to distrust a graph, seen in the data, as helpers/beyond/doubts.py has them: each a sentence, or null. What to
// do about it is said in terms of this page.

const UNITS = 100; // between the largest and the smallest standard deviation
const ALIKE = 1e-4; // share of its variance that a copy of another column has for itself
const MIN_COMMON = 10; // rows by which copies are told
const MIN_OPPOSED = 5; // negative edges,
const SHARE_OPPOSED = 0.25; // and of all of them
const BY_CHANCE = 0.001;
const WORTH = 0.8; // independent samples per row, below which it matters
const MIN_LAGS = 3;
const WINDOW = 3; // lags are summed up to so many times the time within which samples forget
const MOST_PRODUCTS = 2e9; // of numbers: a long and slow series must not keep the reader waiting
const MOST_SAMPLES = 10_000; // that the network was trained on
const DENSITY = 0.9; // edges per pair, of graphs that have
const MIN_DENSE = 10; // nodes
const PATTERN = 5; // standard errors of the autocorrelation that a pattern leaves, long after samples forget
const AGAIN = 0.8; // of its maximum, is an autocorrelation that is high again
const MAX_LAGS = 400; // rows within which a pattern comes again
const N_NAMED = 3;

const written = (x) => Math.round(x).toLocaleString("en");
const quoted = (name) => `'${name}'`;

// "5 pairs ('a' and 'b', ...)"
function several(texts, noun) {
  const named = [...texts.slice(0, N_NAMED), ...(texts.length > N_NAMED ? ["..."] : [])].join(", ");
  return `${written(texts.length)} ${noun}${texts.length > 1 ? "s" : ""} (${named})`;
}

// All of them for second moments S (m, m) of n signals and the edges that were learned; X (n, m) are the rows, if there are.
function findDoubts({ S, n, X, edges, names, standardise }) {
  const m = names.length;
  const deviations = diagonalOf(S, m).map(Math.sqrt);
  return [
    typeof n === "number" ? null : doubtGaps(n, names),
    standardise ? null : doubtUnits(deviations, names),
    doubtCopies(X && typeof n !== "number" ? commonCorrelations(centre(X, m, false), m) : correlationsOf(S, deviations, m), names),
    ...doubtSize(typeof n === "number" ? n : mean(toVector(n, m, allPairs(m))), edges, m),
    doubtOpposedEdges(edges, names),
    X ? doubtOrder(centre(X, m, false), m) : null,
  ].filter(Boolean);
}

// Pairs of columns that hardly any row has both of; n (m, m) is a row less than they have.
function doubtGaps(n, names) {
  const [i, j] = allPairs(names.length);
  const least = Math.min(MIN_VALUES - 1, n.reduce((a, b) => Math.max(a, b)));
  const found = [...i.keys()].filter((e) => n[i[e] * names.length + j[e]] < least);
  if (!found.length) return null;
  const pairs = found.map((e) => `${quoted(names[i[e]])} and ${quoted(names[j[e]])}`);
  return `${several(pairs, "pair")} of columns share fewer than ${least + 1} rows: their probability is a guess from the other columns; leave a column out.`;
}

// Linear interpolation between the values of x, as NumPy has it.
function quantile(x, share) {
  const sorted = Float64Array.from(x).sort();
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  return sorted[below] + (at - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
}

// Columns in different units. A single column may vary so much more than others because it has hardly any neighbours.
function doubtUnits(deviations, names) {
  const [least, most] = [Math.min(...deviations), Math.max(...deviations)];
  const ratio = most / least;
  const spread = quantile(deviations, 0.9) / quantile(deviations, 0.1);
  if (!(ratio > UNITS ** 1.5 || (ratio > UNITS && spread > UNITS ** 0.5))) return null;
  const [from, to] = [least, most].map((x) => quoted(names[deviations.indexOf(x)]));
  const fold = written(Number(ratio.toPrecision(2)));
  return `Standard deviations of the columns differ ${fold}-fold, from ${from} to ${to}, as if they had different units: if they have, tick the first option and learn again.`;
}

// Correlations of all pairs, (E,), from second moments S (m, m).
function correlationsOf(S, deviations, m) {
  const [i, j] = allPairs(m);
  return Float64Array.from(i, (a, e) => S[a * m + j[e]] / (deviations[a] * deviations[j[e]]));
}

// The same over the rows of Z (n, m) that have both columns, if there are enough: so copies are seen in spite of gaps.
function commonCorrelations(Z, m) {
  const [i, j] = allPairs(m);
  const [n, x, y, xx, yy, xy] = Array.from({ length: 6 }, () => new Float64Array(i.length));
  for (let row = 0; row < Z.length; row += m) {
    for (let e = 0; e < i.length; e++) {
      const a = Z[row + i[e]];
      const b = Z[row + j[e]];
      if (a !== a || b !== b) continue; // NaN
      n[e]++;
      x[e] += a;
      y[e] += b;
      xx[e] += a * a;
      yy[e] += b * b;
      xy[e] += a * b;
    }
  }
  const r = (e) => (xy[e] - (x[e] * y[e]) / n[e]) / Math.sqrt((xx[e] - x[e] ** 2 / n[e]) * (yy[e] - y[e] ** 2 / n[e]));
  return n.map((count, e) => (count < MIN_COMMON ? 0 : r(e) || 0));
}

// Columns that nearly are copies, up to sign, by correlations r (E,). With ten rows this never happens by chance.
function doubtCopies(r, names) {
  const [i, j] = allPairs(names.length);
  const unexplained = r.map((x) => 1 - x ** 2);
  const limit = Math.max(ALIKE * quantile(unexplained, 0.5), COPY);
  const alike = [...i.keys()].filter((e) => unexplained[e] <= limit);
  if (!alike.length) return null;
  const pairs = alike.map((e) => `${quoted(names[i[e]])} and ${quoted(names[j[e]])}`);
  return `${several(pairs, "pair")} of columns are (nearly) copies of each other: their edge says nothing of the other columns, and which of the two has the other edges is chance; keep one of each.`;
}

// Numbers of samples or of edges that the network hardly ever saw.
function doubtSize(n, edges, m) {
  const found = [];
  const nPairs = (m * (m - 1)) / 2;
  if (n > MOST_SAMPLES) {
    found.push(`${written(n)} independent samples are outside of 5 to ${written(MOST_SAMPLES)}, which the network was trained on: check the graph on data that you know.`);
  }
  if (m >= MIN_DENSE && edges.expected > DENSITY * nPairs) {
    found.push(`${written(edges.expected)} of ${written(nPairs)} pairs are edges, more than in the graphs that the network was trained on: look for a cause that all columns share and subtract it, or ask for a higher probability.`);
  }
  return found;
}

// Negative edges between nodes that have a positive edge to a third one, more often than chance has it. Signs that are
// drawn at random have no such preference.
function doubtOpposedEdges({ source, target, weight }, names) {
  const m = names.length;
  const positive = new Uint8Array(m * m);
  weight.forEach((w, e) => {
    if (w > 0) positive[source[e] * m + target[e]] = positive[target[e] * m + source[e]] = 1;
  });
  const thirdOf = (e) => names.findIndex((_, c) => positive[source[e] * m + c] && positive[target[e] * m + c]);
  const thirds = weight.map((_, e) => thirdOf(e));
  const opposed = [...weight.keys()].filter((e) => weight[e] < 0 && thirds[e] >= 0);
  const nNegative = weight.filter((w) => w < 0).length;
  if (opposed.length < Math.max(MIN_OPPOSED, SHARE_OPPOSED * nNegative)) return null;
  const nBridged = thirds.filter((c) => c >= 0).length;
  if (chanceOfMore(opposed.length, weight.length, nBridged, nNegative) > BY_CHANCE) return null;
  const e = opposed[0];
  const [a, b, c] = [source[e], target[e], thirds[e]].map((k) => quoted(names[k]));
  return (
    `${written(opposed.length)} of ${written(nNegative)} negative edges join two nodes that both have a positive edge to a third one, such as ${a} and ${b} to ${c}. ` +
    "This happens if signals were smoothed over the graph before they were observed, or if two nodes act on a third; such a partial correlation is negative, but hardly a link of its own. " +
    "Without the tick at negative edges, these are left out."
  );
}

// Hypergeometric: the probability of k or more marked ones among `drawn` out of `all`, of which `marked` are marked.
function chanceOfMore(k, all, marked, drawn) {
  const log = [0];
  for (let x = 1; x <= all; x++) log.push(log[x - 1] + Math.log(x));
  const choose = (n, x) => (x < 0 || x > n ? -Infinity : log[n] - log[x] - log[n - x]);
  let sum = 0;
  for (let x = k; x <= Math.min(marked, drawn); x++) {
    sum += Math.exp(choose(marked, x) + choose(all - marked, drawn - x) - choose(all, drawn));
  }
  return sum;
}

// Autocorrelations of the columns of Z (n, m), which are centred, as a function of the lag; products over a gap are left out.
function autocorrelations(Z, m) {
  const n = Z.length / m;
  const at = (lag) => {
    const sums = new Float64Array(m);
    const pairs = new Float64Array(m);
    for (let row = 0; row < (n - lag) * m; row += m) {
      for (let j = 0; j < m; j++) {
        const product = Z[row + j] * Z[row + j + lag * m];
        if (product !== product) continue; // NaN
        sums[j] += product;
        pairs[j]++;
      }
    }
    return sums.map((sum, j) => (sum / Math.max(pairs[j], 0.5)) * (n - lag));
  };
  const variances = at(0);
  return (lag) => at(lag).map((x, j) => (variances[j] > 0 ? x / variances[j] : 0));
}

// Independent samples per row, by Bartlett: the mean over pairs of columns of 1 / (1 + 2 sum_k rho_i(k) rho_j(k)).
function effectiveShare(Z, m) {
  const n = Z.length / m;
  const rho = autocorrelations(Z, m);
  const sums = new Float64Array(m * m);
  let time = 1;
  for (let lag = 1; lag < n; lag++) {
    const r = rho(lag);
    for (let i = 0; i < m; i++) for (let j = 0; j < m; j++) sums[i * m + j] += r[i] * r[j];
    time += (2 * (total(r) ** 2 - total(r.map((x) => x * x)))) / (m * (m - 1));
    if ((lag >= MIN_LAGS && lag >= WINDOW * time) || lag * Z.length > MOST_PRODUCTS) break;
  }
  return mean(toVector(sums, m, allPairs(m)).map((x) => 1 / clamp(1 + 2 * x, 1, n)));
}

const doubtOrder = (Z, m) => doubtPattern(Z, m) ?? doubtTime(Z, m);

// A pattern that comes again and again, or a level that changes: samples that forget leave autocorrelations of the size of
// 1 / sqrt(independent samples) long afterwards. It matters if by all lags at which it is seen rows are worth much less.
function doubtPattern(Z, m) {
  const n = Z.length / m;
  const nLags = Math.floor(Math.min(n / 4, MAX_LAGS, MOST_PRODUCTS / Z.length));
  const rho = autocorrelations(Z, m);
  const shared = []; // means over pairs of columns of rho_i rho_j, by lag
  const levels = []; // means over columns of rho_i
  let time = 1;
  let start = null;
  for (let lag = 1; lag <= nLags; lag++) {
    const r = rho(lag);
    shared.push((total(r) ** 2 - total(r.map((x) => x * x))) / (m * (m - 1)));
    levels.push(mean(r));
    time += 2 * shared.at(-1);
    if (start === null && lag >= MIN_LAGS && lag >= WINDOW * time) start = 2 * lag;
    if (start === null && 2 * lag >= nLags) return null;
  }
  if (start === null || start >= nLags) return null;
  const known = Z.reduce((sum, z) => sum + !Number.isNaN(z), 0) / Z.length;
  const share = effectiveShare(Z, m);
  const chance = 1 / (n * known ** 2 * share);
  const seen = shared.slice(start).filter((x) => x > (PATTERN / 2) ** 2 * chance);
  if (seen.length < MIN_LAGS || !seen.some((x) => x > PATTERN ** 2 * chance) || 1 / (1 / share + 2 * total(seen)) > WORTH) return null;
  const k = findPeriod(levels, start);
  const what = k ? `those ${written(k)} rows before them, as if a pattern came back every ${written(k)} rows` : "those long before them, as with a trend or a level that changes";
  return (
    `Rows resemble ${what}: columns that follow it look connected. ` +
    `If their order means something, subtract ${k ? "the mean of each phase" : "the trend or level"} first.`
  );
}

// The first lag at which an autocorrelation is high again; null if it only falls before its maximum, which comes after `start`.
function findPeriod(rho, start) {
  const top = rho.indexOf(Math.max(...rho.slice(start)), start);
  const low = rho.slice(0, top).findIndex((x) => x < rho[top] / 2);
  if (low < 0) return null;
  const isHigh = (x) => x > AGAIN * rho[top];
  let best = low + rho.slice(low).findIndex(isHigh);
  for (let k = best; k <= top && isHigh(rho[k]); k++) if (rho[k] > rho[best]) best = k;
  return best + 1;
}

// Rows that follow each other in time.
function doubtTime(Z, m) {
  const n = Z.length / m;
  const first = autocorrelations(Z, m)(1);
  const nPairs = Z.reduce((sum, z, k) => sum + !Number.isNaN(z * Z[k + m]), 0) / m;
  if (!(Math.sqrt(mean(first.map((x) => x * x)) * nPairs) > 3)) return null;
  const share = effectiveShare(Z, m);
  if (share > WORTH) return null;
  return (
    `Rows resemble the rows before them, as in a time series: ${written(n)} rows are worth about ${written(share * n)} independent ones, and probabilities are too sure. ` +
    "If their order means something, take GraphLearner(time_series=True) in Python."
  );
}
