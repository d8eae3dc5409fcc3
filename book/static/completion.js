"use strict";

// What GraphLearner does with the network's answer, for the page "Try it": helpers/beyond/estimates.py and
// helpers/beyond/completion.py. Probable pairs are kept, and get the most likely scale.

const TOLERANCE = 1e-10; // of the log-likelihood
const N_ITERATIONS = 200;
const RIDGE = 1e-14; // of the scaled Hessian, which rounding may leave singular
const COPY = 1e-9; // share of a variance that another column leaves unexplained: below, rounding is all there is

// S as if each column had a little noise of its own, with the variances of S: correlations, divided by what noise costs.
function correlationsWithWhite(S, n, m) {
  const variances = diagonalOf(S, m);
  const R = S.map((x, k) => x / Math.sqrt(variances[Math.floor(k / m)] * variances[k % m]));
  const d = variances.map((_, i) => {
    let share = 1; // of the variance that the most similar column does not explain
    for (let j = 0; j < m; j++) {
      const unexplained = 1 - R[i * m + j] ** 2;
      if (unexplained > COPY) share = Math.min(share, unexplained);
    }
    return Math.sqrt(1 + share / n);
  });
  return R.map((x, k) => (k % (m + 1) ? x / (d[Math.floor(k / m)] * d[k % m]) : 1));
}

// The factor t of the most likely K = diag(k) - t W, for second moments S (m, m) of n signals and signed weights W (m, m).
// With R the correlations and A the weights in these units, it maximises logdet K - tr(R K), by Newton's method.
function likelyScale(S, n, W, m) {
  const R = correlationsWithWhite(S, n, m);
  const deviations = diagonalOf(S, m).map(Math.sqrt);
  let A = W.map((w, k) => w * deviations[Math.floor(k / m)] * deviations[k % m]);
  const size = A.reduce((most, a) => Math.max(most, Math.abs(a)), 0);
  if (size === 0) return 1;
  A = A.map((a) => a / size);
  const agreement = total(A.map((a, k) => a * R[k]));
  if (!(agreement > 0)) return 1; // the edges contradict the data
  const slope = Float64Array.from({ length: m + 1 }, (_, k) => (k < m ? -1 : agreement));
  const evaluate = (x) => {
    const C = cholesky(A.map((a, k) => (k % (m + 1) ? -x[m] * a : x[k / (m + 1)])), m);
    if (!C) return { value: -Infinity };
    let value = total(slope.map((a, k) => a * x[k]));
    for (let k = 0; k < m; k++) value += 2 * Math.log(C[k * m + k]);
    return { x, C, value };
  };
  let at = starts(A, slope, m).map(evaluate).reduce((best, one) => (one.value > best.value ? one : best));
  for (let k = 0; k < N_ITERATIONS; k++) {
    const { step, squared } = newtonStep(choleskyInverse(at.C, m), A, slope, m);
    const decrement = Math.sqrt(squared);
    if (decrement < 1 && -decrement - Math.log1p(-decrement) <= TOLERANCE) break;
    const along = (stride) => evaluate(at.x.map((x, i) => x + stride * step[i]));
    let stride = 1;
    let next = along(stride);
    while (next.value < at.value + 0.1 * stride * squared && stride > 1e-10) next = along((stride /= 2));
    for (let longer = along(2 * stride); longer.value > next.value; longer = along(2 * stride)) {
      stride *= 2;
      next = longer;
    }
    if (!(next.value > at.value)) break;
    at = next;
  }
  return at.x[m] / size;
}

// Where to start from, (k, t) each: c (D + eps I - A), D the row sums of |A|, and the identity.
function starts(A, slope, m) {
  const D = new Float64Array(m);
  A.forEach((a, k) => (D[Math.floor(k / m)] += Math.abs(a)));
  const identity = Float64Array.from({ length: m + 1 }, (_, k) => (k < m ? 1 : 0));
  const dominant = [1, 1e-2, 1e-4].map((eps) => {
    const x = Float64Array.from({ length: m + 1 }, (_, k) => (k < m ? D[k] + eps * mean(D) : 1));
    const trace = -total(slope.map((a, k) => a * x[k]));
    return x.map((value) => (value * m) / trace);
  });
  return [identity, ...dominant];
}

// H^-1 g and the squared decrement g'H^-1 g; with Sigma = K^-1,
// g = (diag Sigma, -tr Sigma A) + slope,    H = [Sigma o Sigma, -diag(Sigma A Sigma); ., tr(Sigma A Sigma A)].
function newtonStep(Sigma, A, slope, m) {
  const AS = multiply(A, Sigma, m); // the transpose of Sigma A
  const H = new Float64Array((m + 1) ** 2);
  const g = Float64Array.from(slope);
  const at = (i, j) => i * (m + 1) + j;
  for (let i = 0; i < m; i++) {
    g[i] += Sigma[i * m + i];
    g[m] -= AS[i * m + i];
    for (let j = 0; j < m; j++) {
      H[at(i, j)] = Sigma[i * m + j] ** 2;
      H[at(m, i)] -= AS[j * m + i] * Sigma[i * m + j];
      H[at(m, m)] += AS[i * m + j] * AS[j * m + i];
    }
    H[at(i, m)] = H[at(m, i)];
  }
  const scale = diagonalOf(H, m + 1).map(Math.sqrt);
  const scaled = H.map((x, k) => x / (scale[Math.floor(k / (m + 1))] * scale[k % (m + 1)]) + (k % (m + 2) ? 0 : RIDGE));
  const C = cholesky(scaled, m + 1);
  const b = g.map((x, k) => x / scale[k]);
  const step = (C ? choleskySolve(C, b) : b).map((x, k) => x / scale[k]);
  return { step, squared: Math.max(total(g.map((x, k) => x * step[k])), 0) };
}

// --- without self-loops ----------------------------------------------------------------------------------------------

// The rank of the signed Laplacian of edges {source, target, weight}: m less the number of balanced components, in which
// nodes fall into two groups with positive edges within and negative edges between them. In the signed double cover, whose
// nodes are (k, +) and (k, -), these fall apart in two.
function laplacianRank({ source, target, weight }, m) {
  const count = (nodes, links) => {
    const parent = Array.from({ length: nodes }, (_, k) => k);
    const find = (k) => {
      while (parent[k] !== k) k = parent[k] = parent[parent[k]];
      return k;
    };
    for (const [a, b] of links) parent[find(a)] = find(b);
    return parent.filter((p, k) => p === k).length;
  };
  const plain = source.map((a, e) => [a, target[e]]);
  const cover = source.flatMap((a, e) => {
    const mirrored = weight[e] < 0 ? m : 0;
    return [[a, target[e] + mirrored], [a + m, target[e] + m - mirrored]];
  });
  return m - (count(2 * m, cover) - count(m, plain));
}

// The factor that gives tr(S L), L the signed Laplacian, its most likely value, the rank of L.
function laplacianScale(S, edges, m) {
  const { source, target, weight } = edges;
  let energy = 0;
  weight.forEach((w, e) => {
    const [i, j] = [source[e], target[e]];
    energy += Math.abs(w) * (S[i * m + i] + S[j * m + j]) - 2 * w * S[i * m + j];
  });
  return energy > 0 ? laplacianRank(edges, m) / energy : 1;
}

// --- a graph ---------------------------------------------------------------------------------------------------------

// The edges that are probable enough: {source, target, weight, probability}, weights below 0 for negative edges; and how
// many edges there are, as far as one can tell.
// options: {signed, selfLoops, minProbability}
function learn(S, n, network, options, report) {
  const m = Math.round(Math.sqrt(S.length));
  const pairs = allPairs(m);
  const { positive, negative, weight } = estimate(S, n, network, options, report);
  const probability = positive.map((p, e) => Math.min(p + negative[e], 1));
  const expected = weight.map((w, e) => (positive[e] - negative[e]) * w);
  const kept = [...expected.keys()].filter((e) => probability[e] >= options.minProbability && expected[e] !== 0);
  const edges = {
    source: kept.map((e) => pairs[0][e]),
    target: kept.map((e) => pairs[1][e]),
    weight: kept.map((e) => expected[e]),
    probability: kept.map((e) => probability[e]),
    expected: total(probability),
  };
  const typical = typeof n === "number" ? n : mean(n);
  const W = toMatrix(new Float64Array(m), edges.weight, [edges.source, edges.target]);
  const scale = options.selfLoops ? likelyScale(S, typical, W, m) : laplacianScale(S, edges, m);
  edges.weight = edges.weight.map((w) => w * scale);
  report(1);
  return edges;
}
