"use strict";

// The default network of GraphLearner, for the page "Try it": what helpers/likelihood.py and helpers/beyond/equivariant.py
// compute for all pairs of m nodes, in double precision. Matrices are Float64Array, row by row; half-vectors (E,) are upper
// triangles, row by row.

// --- half-vectors and matrices ---------------------------------------------------------------------------------------

// The ends of all pairs, [i, j].
function allPairs(m) {
  const i = new Int32Array((m * (m - 1)) / 2);
  const j = new Int32Array(i.length);
  for (let a = 0, e = 0; a < m; a++) for (let b = a + 1; b < m; b++, e++) [i[e], j[e]] = [a, b];
  return [i, j];
}

// S_ii + S_jj - 2 S_ij of every pair.
function differences(S, m, [i, j]) {
  return Float64Array.from(i, (a, e) => S[a * m + a] + S[j[e] * m + j[e]] - 2 * S[a * m + j[e]]);
}

// The sum over the pairs at every node of x (E, width): (m, width).
function sumAtNodes(x, m, [i, j], width = 1) {
  const total = new Float64Array(m * width);
  for (let e = 0; e < i.length; e++) {
    const [from, a, b] = [e * width, i[e] * width, j[e] * width];
    for (let k = 0; k < width; k++) {
      total[a + k] += x[from + k];
      total[b + k] += x[from + k];
    }
  }
  return total;
}

// The lower triangle C with C C' = A, for a positive definite A (m, m).
function cholesky(A, m) {
  const C = new Float64Array(m * m);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = A[i * m + j];
      for (let k = 0; k < j; k++) sum -= C[i * m + k] * C[j * m + k];
      if (i === j && !(sum > 0)) throw new Error("These columns depend on each other: leave out those that are sums of others.");
      C[i * m + j] = i === j ? Math.sqrt(sum) : sum / C[j * m + j];
    }
  }
  return C;
}

// The inverse of a positive definite A (m, m): B'B with B = C^-1.
function inverse(A, m) {
  const C = cholesky(A, m);
  const B = new Float64Array(m * m); // row by row, lower triangle
  for (let i = 0; i < m; i++) {
    B[i * m + i] = 1;
    for (let k = 0; k < i; k++) {
      const c = C[i * m + k];
      for (let j = 0; j <= k; j++) B[i * m + j] -= c * B[k * m + j];
    }
    for (let j = 0; j <= i; j++) B[i * m + j] /= C[i * m + i];
  }
  const inverted = new Float64Array(m * m);
  for (let k = 0; k < m; k++) {
    for (let i = 0; i <= k; i++) {
      const b = B[k * m + i];
      for (let j = 0; j <= i; j++) inverted[i * m + j] += b * B[k * m + j];
    }
  }
  for (let i = 0; i < m; i++) for (let j = i + 1; j < m; j++) inverted[i * m + j] = inverted[j * m + i];
  return inverted;
}

// The second moments X'X / n of rows X (n, m).
function moments(X, n, m) {
  const S = new Float64Array(m * m);
  for (let row = 0; row < n; row++) {
    for (let i = 0; i < m; i++) {
      const x = X[row * m + i] / n;
      for (let j = 0; j <= i; j++) S[i * m + j] += x * X[row * m + j];
    }
  }
  for (let i = 0; i < m; i++) for (let j = i + 1; j < m; j++) S[i * m + j] = S[j * m + i];
  return S;
}

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const logSigmoid = (x) => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));
const total = (x) => x.reduce((a, b) => a + b, 0);

// --- likelihood ------------------------------------------------------------------------------------------------------

// y + h / n, h the harmonic mean of the distances: one more signal, which is white.
function addWhiteSignal(y, n) {
  const positive = y.filter((x) => x > 0);
  const h = positive.length / total(positive.map((x) => 1 / x));
  return y.map((x) => x + h / n);
}

// Effective resistances of the graph w.
function resistances(w, m, pairs) {
  const A = new Float64Array(m * m).fill(1 / m);
  sumAtNodes(w, m, pairs).forEach((d, k) => (A[k * m + k] += d));
  w.forEach((x, e) => {
    A[pairs[0][e] * m + pairs[1][e]] -= x;
    A[pairs[1][e] * m + pairs[0][e]] -= x;
  });
  return differences(inverse(A, m), m, pairs);
}

// The inverse covariance of signals with distances y, off-diagonal entries where positive, else little.
function clippedInverse(y, m, pairs) {
  const mean = sumAtNodes(y, m, pairs).map((x) => x / m);
  const all = total(mean) / m;
  const S = new Float64Array(m * m);
  for (let i = 0; i < m; i++) for (let j = 0; j < m; j++) S[i * m + j] = 0.5 * (mean[i] + mean[j] - all) + 1 / m;
  y.forEach((x, e) => {
    S[pairs[0][e] * m + pairs[1][e]] -= x / 2;
    S[pairs[1][e] * m + pairs[0][e]] -= x / 2;
  });
  const P = inverse(S, m);
  return y.map((x, e) => Math.max(1 / m - P[pairs[0][e] * m + pairs[1][e]], 0.01 / (m * x)));
}

// Weights near the most likely ones, and their resistances, after `nUpdates` of w <- w r / y.
function approximateMle(y, m, pairs, nUpdates, report) {
  const unit = y.slice().sort()[(y.length - 1) >> 1];
  const scaled = y.map((x) => x / unit);
  let w = clippedInverse(scaled, m, pairs);
  let r = resistances(w, m, pairs);
  for (let k = 0; k < nUpdates; k++) {
    w = w.map((x, e) => (x * r[e]) / scaled[e]);
    r = resistances(w, m, pairs);
    report((k + 1) / nUpdates);
  }
  return [w.map((x) => x / unit), r.map((x) => x * unit)];
}

// --- network ---------------------------------------------------------------------------------------------------------

// x W' + b for every row of x (rows, in): (rows, out).
function linear({ weight, bias }, x) {
  const out = bias.length;
  const width = weight.length / out;
  const rows = x.length / width;
  const y = new Float64Array(rows * out);
  for (let row = 0; row < rows; row++) {
    for (let o = 0; o < out; o++) {
      let sum = bias[o];
      for (let k = 0; k < width; k++) sum += weight[o * width + k] * x[row * width + k];
      y[row * out + o] = sum;
    }
  }
  return y;
}

const relu = (x) => x.map((value) => Math.max(0, value));
const perceptron = (layers, x) => linear(layers[2], relu(linear(layers[0], x)));

// Edges tell their nodes, nodes tell their edges and the graph: h (E, width) -> (E, width).
function passMessages(round, h, a, d, m, pairs, width) {
  const told = relu(linear(round.tell, h)).map((x, k) => x * a[Math.floor(k / width)]);
  const node = sumAtNodes(told, m, pairs, width).map((x, k) => x / d[Math.floor(k / width)]);
  const graph = Float64Array.from({ length: width }, (_, k) => {
    let sum = 0;
    for (let i = 0; i < m; i++) sum += node[i * width + k];
    return sum / m;
  });
  const known = new Float64Array(m * (2 * width + 1));
  for (let i = 0; i < m; i++) {
    known.set(node.subarray(i * width, (i + 1) * width), i * (2 * width + 1));
    known.set(graph, i * (2 * width + 1) + width);
    known[i * (2 * width + 1) + 2 * width] = Math.log(d[i]);
  }
  const answer = linear(round.node, known);
  const own = linear(round.own, h);
  for (let e = 0; e < a.length; e++) {
    const [from, i, j] = [e * width, pairs[0][e] * width, pairs[1][e] * width];
    for (let k = 0; k < width; k++) own[from + k] += answer[i + k] + answer[j + k];
  }
  const change = linear(round.out, relu(own));
  return h.map((x, k) => x + change[k]);
}

// w over its standard error as an entry of an inverse covariance.
function standardScores(w, n, m, [i, j]) {
  const d = sumAtNodes(w, m, [i, j]);
  return w.map((x, e) => (x > 0 ? x / Math.sqrt((d[i[e]] * d[j[e]] + x * x) / n) : 0));
}

// Features of every edge, (E, 8), from unit-free w, y, ratio = r / y and z.
function edgeFeatures(w, y, ratio, z, n) {
  const root = Math.sqrt(n / 2);
  const x = new Float64Array(8 * w.length);
  for (let e = 0; e < w.length; e++) {
    const leverage = Math.min(w[e] * y[e] * ratio[e], 2);
    const slack = clamp(1 - ratio[e], -3, 1);
    const size = [Math.log(w[e] + 1e-5) / 3, clamp(Math.log(y[e]), -5, 5) / 3, leverage, slack];
    const evidence = [Math.asinh(root * leverage), Math.asinh(root * slack), Math.asinh(z[e]), Math.log(n) / 6];
    x.set([...size, ...evidence], 8 * e);
  }
  return x;
}

// The factor that gives the graph the scale of the data, by Foster's theorem.
function fosterScale(logit, wy, m, pairs) {
  const alone = sumAtNodes(logit.map((x) => logSigmoid(-x)), m, pairs).map(Math.exp);
  const rank = Math.max(m - 1 - total(alone), 1);
  return rank / Math.max(total(logit.map((x, e) => sigmoid(x) * Math.min(wy[e], 2))), 1e-6);
}

// Probability and weight of every edge, each (E,), from second moments S (m, m) of n independent signals.
function estimate(S, n, network, report = () => {}) {
  const m = Math.round(Math.sqrt(S.length));
  const pairs = allPairs(m);
  const y = addWhiteSignal(differences(S, m, pairs).map((x) => Math.max(x, 0)), n);
  const [w, r] = approximateMle(y, m, pairs, network.nUpdates, (share) => report(0.5 * share));

  // what stands out of the noise, and the unit of w: its mean degree
  const z = standardScores(w, n, m, pairs);
  const signal = w.map((x, e) => (x * z[e] ** 2) / (z[e] ** 2 + 9));
  const unit = (2 * total(signal)) / m;
  const ratio = r.map((x, e) => x / y[e]);
  const free = { w: w.map((x) => x / unit), y: y.map((x) => x * unit), a: signal.map((x) => x / unit) };
  const d = sumAtNodes(free.a, m, pairs).map((x) => Math.max(x, 1e-9));
  const width = network.embed.bias.length;
  let h = linear(network.embed, edgeFeatures(free.w, free.y, ratio, z, n));
  network.rounds.forEach((round, k) => {
    h = passMessages(round, h, free.a, d, m, pairs, width);
    report(0.5 + (0.4 * (k + 1)) / network.rounds.length);
  });

  // probability; weight as a multiple of the graph's typical one, then in the scale of the data
  const logit = perceptron(network.edge, h);
  const probability = logit.map(sigmoid);
  const typical = total(probability.map((p, e) => p * free.a[e])) / Math.max(total(probability), 1e-6);
  const known = new Float64Array(w.length * (width + 1));
  for (let e = 0; e < w.length; e++) {
    known.set(h.subarray(e * width, (e + 1) * width), e * (width + 1));
    known[e * (width + 1) + width] = Math.log(Math.max(free.w[e] / typical, 1e-4));
  }
  const weight = perceptron(network.size, known).map((x) => typical * Math.exp(clamp(x, -5, 5)));
  const scale = fosterScale(logit, weight.map((x, e) => x * free.y[e]), m, pairs);
  return { probability, weight: weight.map((x) => x * scale * unit) };
}

// --- what GraphLearner does around it --------------------------------------------------------------------------------

// Number of connected components of the graph with the edges `kept`, a list of indices.
function countComponents(kept, m, [i, j]) {
  const parent = Array.from({ length: m }, (_, k) => k);
  const find = (k) => (parent[k] === k ? k : (parent[k] = find(parent[k])));
  for (const e of kept) parent[find(i[e])] = find(j[e]);
  return parent.filter((p, k) => p === k).length;
}

// The edges of at least `least` probability, with their most likely scale: {source, target, weight, probability}.
function learn(S, n, network, least, report) {
  const m = Math.round(Math.sqrt(S.length));
  const pairs = allPairs(m);
  const { probability, weight } = estimate(S, n, network, report);
  const expected = weight.map((x, e) => x * probability[e]);
  const most = expected.reduce((a, b) => Math.max(a, b), 0);
  const kept = [...expected.keys()].filter((e) => expected[e] > 1e-6 * most && probability[e] >= least);
  const y = differences(S, m, pairs);
  const wy = total(kept.map((e) => expected[e] * y[e]));
  const scale = wy > 0 ? (m - countComponents(kept, m, pairs)) / wy : 1;
  return {
    source: kept.map((e) => pairs[0][e]),
    target: kept.map((e) => pairs[1][e]),
    weight: kept.map((e) => expected[e] * scale),
    probability: kept.map((e) => probability[e]),
  };
}

// Second moments of the columns X (n, m), centred and, if wished, divided by their standard deviation.
function centredMoments(X, n, m, standardise) {
  const Z = Float64Array.from(X);
  for (let j = 0; j < m; j++) {
    let mean = 0;
    for (let i = 0; i < n; i++) mean += X[i * m + j] / n;
    let square = 0;
    for (let i = 0; i < n; i++) square += (X[i * m + j] - mean) ** 2 / n;
    const scale = standardise ? Math.sqrt(square) : 1;
    for (let i = 0; i < n; i++) Z[i * m + j] = (X[i * m + j] - mean) / scale;
  }
  return moments(Z, n, m).map((x) => (x * n) / (n - 1)); // a mean that was estimated costs a sample
}
