"use strict";

// The default network of GraphLearner, for the page "Try it": what helpers/beyond/atoms.py, broad.py and looks.py
// compute for all pairs of m nodes, in double precision.

const FASTEST = 1e3; // factor by which a weight may grow in one update
const ZERO = 1e-9; // of the largest eigenvalue: what is smaller is zero
const FILLED = 1e4; // of the largest eigenvalue
const LEAST = 1e-3; // leverage of an improbable pair, times m: there is always a way from node to node
const N_TOLD = 21; // features of a pair from an estimate of all others
const SPREADS = [0.05, 3]; // least and largest standard deviation of log-weights that evidence is weighed with,
const GROUND_SPREADS = [0.05, 4]; // and of the logarithm of the ground,
const LEAST_GROUND = 1e-12; // with which a node begins to settle, beside the inverse of the mean variance
const RELAXATION = 1.5; // of steps that all atoms take at once; those below 2 are stable
const N_NEWTON = 6; // steps to where the integrand of the evidence is largest,
const N_AGAIN = 2; // and if one starts from where it was largest before
// Gauss and Hermite: the integral of exp(-t^2) f(t) is about the sum of weights times f at the nodes
const NODES = [-2.6519613568352334, -1.6735516287674714, -0.8162878828589646, 0, 0.8162878828589646, 1.6735516287674714, 2.6519613568352334];
const NODE_WEIGHTS = [
  0.0009717812450995199, 0.05451558281912705, 0.4256072526101278, 0.8102646175568072, 0.4256072526101278,
  0.05451558281912705, 0.0009717812450995199,
];

// --- three kinds of atoms: differences (E,), sums (E,) and the ground (m,) -------------------------------------------

// u'S u for every atom u.
function atomsOf(S, m, [i, j]) {
  const ground = diagonalOf(S, m);
  const both = (e, sign) => ground[i[e]] + ground[j[e]] + sign * 2 * S[i[e] * m + j[e]];
  return { difference: Float64Array.from(i, (_, e) => both(e, -1)), sum: Float64Array.from(i, (_, e) => both(e, 1)), ground };
}

// The diagonal of the precision matrix that atoms of weights w make.
function diagonalOfAtoms(w, m, pairs) {
  const ends = sumAtNodes(w.difference.map((a, e) => a + w.sum[e]), m, pairs);
  return ends.map((d, k) => d + w.ground[k]);
}

// The variance of one more signal, white and of the size of the near distances, divided by n; with more signals than nodes
// it fades faster.
function whiteSignal(y, n, m, pairs) {
  const near = y.difference.map((d, e) => Math.min(d, y.sum[e]));
  const floor = Math.max(1e-3 * lowerMedian(near), Number.MIN_VALUE);
  const inverses = sumAtNodes(near.map((d) => 1 / Math.max(d, floor)), m, pairs);
  return lowerMedian(inverses.map((x) => (m - 1) / x)) / (2 * n) / (1 + (n / m) ** 2);
}

// Weights to start from: entries of an inverse covariance where they are positive, else little.
const startFrom = (k, y, m) => Math.max(k / Math.max(k * y, 1) ** 3, 0.01 / (m * y));

// Weights near the most likely ones, and their resistances, after `nUpdates` of w <- w r / y, most of them over-relaxed.
function approximateMle(S, m, pairs, { signed, selfLoops }, nUpdates, report) {
  const unit = mean(diagonalOf(S, m));
  const y = atomsOf(S.map((x) => x / unit), m, pairs);
  const P = inverse(S.map((x) => x / unit), m);
  const off = toVector(P, m, pairs);
  const w = {
    difference: off.map((k, e) => startFrom(-k, y.difference[e], m)),
    sum: off.map((k, e) => (signed ? startFrom(k, y.sum[e], m) : 0)),
    ground: new Float64Array(m),
  };
  const ends = diagonalOfAtoms(w, m, pairs);
  if (selfLoops) w.ground = ends.map((d, k) => Math.max(P[k * m + k] - d, 0.05 / y.ground[k]));
  for (let step = 0; ; step++) {
    const diagonal = diagonalOfAtoms(w, m, pairs).map((d) => d * (1 + 1e-12)); // positive definite in spite of rounding
    let K = toMatrix(diagonal, w.sum.map((b, e) => b - w.difference[e]), pairs);
    if (!signed && !selfLoops) {
      const common = mean(diagonal) / m; // a Laplacian lacks the constant vector
      K = K.map((x) => x + common);
    }
    const r = atomsOf(inverse(K, m), m, pairs);
    report((step + 1) / (nUpdates + 1));
    if (step === nUpdates) {
      const times = (atoms, factor) =>
        Object.fromEntries(Object.entries(atoms).map(([kind, x]) => [kind, x.map((value) => value * factor)]));
      r.difference = r.difference.map((x) => Math.max(x, 0));
      if (selfLoops) moveToGround(w, pairs);
      return { w: times(w, 1 / unit), r: times(r, unit) };
    }
    const power = step > 2 && step < nUpdates - 2 ? 1.8 : 1;
    for (const kind of signed ? ["difference", "sum", "ground"] : ["difference", "ground"]) {
      const [weight, seen, made] = [w[kind], y[kind], r[kind]];
      for (let k = 0; k < weight.length; k++) {
        weight[k] *= Math.min(Math.max(made[k], 0) / seen[k], FASTEST) ** power;
      }
    }
  }
}

// The resistances of all atoms of weights w; of a Laplacian, with the constant vector added.
function resistances(w, m, pairs, isLaplacian) {
  const diagonal = diagonalOfAtoms(w, m, pairs);
  const common = isLaplacian ? mean(diagonal) / m : 0;
  const K = toMatrix(diagonal.map((d) => d * (1 + 1e-10)), w.sum.map((b, e) => b - w.difference[e]), pairs);
  const r = atomsOf(inverse(K.map((x) => x + common), m), m, pairs);
  r.difference = r.difference.map((x) => Math.max(x, 0));
  return r;
}

// Where a pair has both atoms, the lesser is as good as ground at its ends: K stays the same.
function moveToGround(w, [i, j]) {
  for (let e = 0; e < i.length; e++) {
    const both = Math.min(w.difference[e], w.sum[e]);
    w.difference[e] -= both;
    w.sum[e] -= both;
    w.ground[i[e]] += 2 * both;
    w.ground[j[e]] += 2 * both;
  }
}

// S with a large variance along v where S v = 0 for one v that involves all nodes, and n > m: so it is if every row has the
// sum 0. Then each column follows from all others, and the inverse says nothing else.
function fillMissingDirection(S, n, m) {
  if (!(n > m)) return S;
  let bound = 0; // of the eigenvalues
  for (let i = 0; i < m; i++) bound = Math.max(bound, total(S.subarray(i * m, (i + 1) * m).map(Math.abs)));
  if (cholesky(S.map((x, k) => (k % (m + 1) ? x : x - ZERO * bound)), m)) return S; // the least is larger than that
  const { values, vectors } = eigen(S, m);
  const largest = Math.max(...values);
  const missing = [...values.keys()].filter((k) => values[k] < ZERO * largest);
  if (missing.length !== 1) return S;
  const v = vectors.subarray(missing[0] * m, (missing[0] + 1) * m);
  const sizes = v.map(Math.abs);
  if (!(Math.min(...sizes) > 0.01 * Math.max(...sizes))) return S;
  return S.map((x, k) => x + FILLED * largest * v[Math.floor(k / m)] * v[k % m]);
}

// --- features --------------------------------------------------------------------------------------------------------

// The sizes and signs of what is known of a pair's atom: 7 features of weight w, of what it sees, y, and of its
// resistance r; g: the size of the diagonal at its ends; root: of the number of signals.
function atomFeatures(w, y, r, g, root, typical) {
  const logarithm = (x) => clamp(Math.log(Math.max(x, 1e-12)), -12, 12) / 3;
  const leverage = Math.min(w * r, 1.5);
  const slack = clamp(1 - r / y, -3, 1);
  return [
    clamp(logarithm(w) - typical / 3, -4, 4), Math.max(logarithm(w / g), -4), clamp(logarithm(y) + typical / 3, -4, 4),
    leverage, slack, Math.asinh((root * leverage) / 2), Math.asinh((root * slack) / 2),
  ];
}

const NONE = new Array(7).fill(0); // the features of a kind of atom that is left out

// What the network is told, from second moments S (m, m) of n signals, a number or (m, m): features of pairs (E, 24) and
// of nodes (m, 8); the most likely weights of a pair's two atoms, what they see, and how much the pair stands out of the
// noise, s; and the unit of S.
function describe(S, n, m, pairs, kinds, nUpdates, report) {
  const [i, j] = pairs;
  const unit = mean(diagonalOf(S, m));
  const nPair = typeof n === "number" ? new Float64Array(i.length).fill(n) : toVector(n, m, pairs);
  const nNode = typeof n === "number" ? new Float64Array(m).fill(n) : diagonalOf(n, m);
  const scaled = S.map((x) => x / unit);
  const white = whiteSignal(atomsOf(scaled, m, pairs), mean(nPair), m, pairs) + 1e-10;
  for (let k = 0; k < m; k++) scaled[k * m + k] += white;
  const y = atomsOf(scaled, m, pairs);
  const { w, r } = approximateMle(scaled, m, pairs, kinds, nUpdates, report);
  const P = inverse(scaled, m);

  // how sure the data are of each weight: over its standard error as an entry of an inverse covariance
  const diagonal = diagonalOfAtoms(w, m, pairs);
  const g = Float64Array.from(i, (a, e) => Math.sqrt(diagonal[a] * diagonal[j[e]]));
  const z = g.map((size, e) => {
    const v = w.difference[e] - w.sum[e];
    return (Math.sqrt(nPair[e]) * v) / Math.hypot(size, v);
  });
  const s = z.map((x) => (x * x) / (x * x + 9));
  const larger = w.difference.map((a, e) => Math.log(Math.max(a, w.sum[e]) + 1e-9));
  const typical = total(larger.map((x, e) => s[e] * x)) / Math.max(total(s), 1e-9);

  const x = new Float64Array(24 * i.length);
  for (let e = 0; e < i.length; e++) {
    const root = Math.sqrt(nPair[e]);
    const [a, b] = [i[e], j[e]];
    const partial = -P[a * m + b] / Math.sqrt(P[a * m + a] * P[b * m + b]);
    const correlation = scaled[a * m + b] / Math.sqrt(y.ground[a] * y.ground[b]);
    const difference = atomFeatures(w.difference[e], y.difference[e], r.difference[e], g[e], root, typical);
    const sum = kinds.signed ? atomFeatures(w.sum[e], y.sum[e], r.sum[e], g[e], root, typical) : NONE;
    const evidence = [z[e], root * partial].map(Math.asinh);
    const size = [Math.log(nPair[e]) / 6, Math.log(m) / 4, Math.log(nPair[e] / m) / 4];
    x.set([...difference, ...sum, ...evidence, partial, Math.asinh(root * correlation), correlation, ...size], 24 * e);
    x[24 * e + 22] = kinds.signed;
    x[24 * e + 23] = kinds.selfLoops;
  }

  const count = sumAtNodes(s, m, pairs);
  const lost = kinds.signed || kinds.selfLoops ? 0 : 1 / m; // the constant vector
  const nodes = new Float64Array(8 * m);
  for (let k = 0; k < m; k++) {
    const seen = y.ground[k];
    const slack = Math.sqrt(nNode[k] / 2) * clamp(1 - r.ground[k] / seen, -3, 1);
    nodes.set(
      [
        clamp(Math.log(diagonal[k]) - typical, -9, 9) / 3, w.ground[k] / diagonal[k], Math.min(w.ground[k] * r.ground[k], 1.5),
        kinds.selfLoops ? Math.asinh(slack) : 0, clamp(Math.log(seen * P[k * m + k]), 0, 12) / 3,
        clamp(Math.log(seen * diagonal[k]), -3, 12) / 3, Math.log(count[k] + 0.1) / 2, 1 - lost - w.ground[k] * seen,
      ],
      8 * k,
    );
  }
  return { x, nodes, w, y, s, nPair, count, unit };
}

// --- network ---------------------------------------------------------------------------------------------------------

// x W' + b for every row of x (rows, width): (rows, out). Four outputs at once, so that each x is read a quarter as often.
function linear({ weight, bias }, x) {
  const out = bias.length;
  const width = weight.length / out;
  const rows = x.length / width;
  const y = new Float64Array(rows * out);
  for (let row = 0; row < rows; row++) {
    const from = row * width;
    let o = 0;
    for (; o + 3 < out; o += 4) {
      const w0 = o * width;
      const w1 = w0 + width;
      const w2 = w1 + width;
      const w3 = w2 + width;
      let [a, b, c, d] = [bias[o], bias[o + 1], bias[o + 2], bias[o + 3]];
      for (let k = 0; k < width; k++) {
        const value = x[from + k];
        a += weight[w0 + k] * value;
        b += weight[w1 + k] * value;
        c += weight[w2 + k] * value;
        d += weight[w3 + k] * value;
      }
      const to = row * out + o;
      y[to] = a;
      y[to + 1] = b;
      y[to + 2] = c;
      y[to + 3] = d;
    }
    for (; o < out; o++) {
      let sum = bias[o];
      for (let k = 0; k < width; k++) sum += weight[o * width + k] * x[from + k];
      y[row * out + o] = sum;
    }
  }
  return y;
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// In place.
function relu(x) {
  for (let k = 0; k < x.length; k++) if (x[k] < 0) x[k] = 0;
  return x;
}

const perceptron = (layers, x) => linear(layers[2], relu(linear(layers[0], x)));

// Pairs tell their nodes, nodes tell their pairs and the graph: h (E, width), in place.
function passMessages(round, h, atNodes, s, count, pairs) {
  const m = count.length;
  const width = round.tell.bias.length;
  const told = relu(linear(round.tell, h));
  for (let e = 0, k = 0; e < s.length; e++) for (let c = 0; c < width; c++, k++) told[k] *= s[e];
  const node = sumAtNodes(told, m, pairs, width);
  const graph = new Float64Array(width);
  for (let i = 0, k = 0; i < m; i++) {
    for (let c = 0; c < width; c++, k++) {
      node[k] /= count[i] + 0.1;
      graph[c] += node[k] / m;
    }
  }
  const known = new Float64Array(2 * width * m);
  for (let i = 0; i < m; i++) {
    known.set(node.subarray(i * width, (i + 1) * width), 2 * i * width);
    known.set(graph, (2 * i + 1) * width);
  }
  const answer = linear(round.node, known).map((x, k) => x + atNodes[k]);
  const own = linear(round.own, h);
  for (let e = 0, k = 0; e < s.length; e++) {
    const a = pairs[0][e] * width;
    const b = pairs[1][e] * width;
    for (let c = 0; c < width; c++, k++) own[k] += answer[a + c] + answer[b + c];
  }
  const change = linear(round.out, relu(own));
  for (let k = 0; k < h.length; k++) h[k] += change[k];
}

// Probabilities of a positive and of a negative edge, each (E,), from their logits (E, 2); no edge has the logit 0.
function probabilities(logit) {
  const positive = new Float64Array(logit.length / 2);
  const negative = new Float64Array(positive.length);
  for (let e = 0; e < positive.length; e++) {
    const a = logit[2 * e];
    const b = logit[2 * e + 1];
    const most = Math.max(0, a, b);
    const all = Math.exp(-most) + Math.exp(a - most) + Math.exp(b - most);
    positive[e] = Math.exp(a - most) / all;
    negative[e] = Math.exp(b - most) / all;
  }
  return { positive, negative };
}

// Weights (E,): the most likely ones, drawn towards their mean, in the scale of the data, and corrected. They may give way
// to those at rest. `alone` are the likeliest weights of a pair's two atoms given the others.
function weigh(layers, h, { positive, negative }, { w, y, nodes }, alone, rest) {
  const E = positive.length;
  const p = positive.map((x, e) => x + negative[e]);
  const ofSign = (weights, e) => {
    const share = positive[e] / Math.max(p[e], 1e-12);
    return Math.log(Math.max(share * weights.difference[e] + (1 - share) * weights.sum[e], 1e-9));
  };
  const logarithm = p.map((_, e) => ofSign(w, e));
  const [middle, spread] = rest.law;
  const resting = rest.weight.map(Math.log);
  const ratio = logarithm.map((x) => x - middle);
  // what the ground leaves of the leverage to the pairs; sums without an edge share the common mode with it
  let rank = 0;
  for (let k = 7; k < nodes.length; k += 8) rank += nodes[k];
  for (let e = 0; e < E; e++) rank -= (1 - negative[e]) * w.sum[e] * y.sum[e];
  // Foster: the leverages of the edges add up to the rank, and y measures resistances without bias
  const scale = (logarithms) => {
    let seen = 0;
    logarithms.forEach((x, e) => {
      const weight = Math.exp(x);
      seen += positive[e] * Math.min(weight * y.difference[e], 2) + negative[e] * Math.min(weight * y.sum[e], 2);
    });
    return Math.log(clamp(Math.max(rank, 0.1) / Math.max(seen, 1e-3), 0.05, 20));
  };
  const common = [Math.log(spread) / 3, scale(logarithm)];
  const width = h.length / E;
  const known = new Float64Array(E * (width + 6));
  for (let e = 0; e < E; e++) {
    const at = e * (width + 6);
    known.set(h.subarray(e * width, (e + 1) * width), at);
    const others = [ofSign(alone, e), resting[e]].map((x) => (x - middle) / 3);
    const told = [ratio[e] / 3, ratio[e] / (spread + 0.1) / 3, ...common, ...others];
    known.set(told.map((x) => clamp(x, -5, 5)), at + width);
  }
  // how strongly to draw, what to add, whether to trust the common scale, and whether to give way
  const answer = perceptron(layers, known);
  const drawn = ratio.map((x, e) => clamp(middle + x * sigmoid(3 - answer[4 * e]), -25, 25));
  const off = scale(drawn);
  return drawn.map((x, e) => {
    const corrected = x + sigmoid(answer[4 * e + 2]) * off + clamp(0.3 * answer[4 * e + 1], -3, 3);
    return Math.exp(corrected + sigmoid(answer[4 * e + 3]) * (resting[e] - corrected));
  });
}

// Mean and standard deviation of x (E,), of which each value counts p (E,).
function meanAndSpread(p, x) {
  const all = Math.max(total(p), 1e-6);
  const middle = total(p.map((share, e) => share * x[e])) / all;
  return [middle, Math.sqrt(total(p.map((share, e) => share * (x[e] - middle) ** 2)) / all + 1e-6)];
}

// Mean and standard deviation of numbers x that are known up to a variance, each counting p, all (E,).
function momentsOfLaw(p, x, variance, bounds) {
  const [middle, between] = meanAndSpread(p, x);
  const [within] = meanAndSpread(p, variance);
  return [middle, clamp(Math.sqrt(within + between ** 2), ...bounds)];
}

// The x = log d where likelihood ratio times prior is largest, minus the second derivative of its logarithm there, and
// d r / (1 + d r) and d y. From `start`, if it is given, the search is short.
function mostProbable(r, y, half, mean, precision, start = null) {
  const at = (x) => {
    const d = Math.exp(x);
    const leverage = (d * r) / (1 + d * r);
    return { x, leverage, seen: d * y, curvature: Math.max(half * (d * y - leverage * (1 - leverage)), 0) + precision };
  };
  let x = start;
  if (x === null) {
    const sharpness = half * Math.max(1 - y / r, 0) ** 2;
    const best = Math.log(Math.max(1 / y - 1 / r, 1e-12));
    x = Math.min((sharpness * best + precision * mean) / (sharpness + precision), -Math.log(y));
  }
  for (let step = 0; step < (start === null ? N_NEWTON : N_AGAIN); step++) {
    const { leverage, seen, curvature } = at(x);
    x += clamp((half * (leverage - seen) - precision * (x - mean)) / curvature, -1, 1);
  }
  return at(x);
}

// Log-evidence for an atom of unknown weight d, and the posterior mean of d, where the likelihood ratio is
// (1 + d r)^(n/2) exp(-n/2 d y) and log d is normal. See `weigh_evidence` in looks.py.
function weighEvidence(r, y, n, mean, spread) {
  const half = n / 2;
  const precision = spread ** -2;
  const { x, curvature } = mostProbable(r, y, half, mean, precision);
  const width = Math.sqrt(2 / curvature);
  const d = NODES.map((t) => Math.exp(x + width * t));
  const values = NODES.map((t, k) => {
    const prior = (precision * (x + width * t - mean) ** 2) / 2;
    return half * (Math.log1p(d[k] * r) - d[k] * y) - prior + t * t + Math.log(NODE_WEIGHTS[k]);
  });
  const largest = Math.max(...values);
  const shares = values.map((value) => Math.exp(value - largest));
  const whole = total(shares);
  return {
    evidence: largest + Math.log(whole) + Math.log(width / spread) - Math.log(2 * Math.PI) / 2,
    likely: total(shares.map((share, k) => share * d[k])) / whole,
  };
}

// Where the logarithm of an atom's weight w is likeliest, its variance there, and w after a step to its mean, by the law of
// this atom given all others. See `expect_alone` in looks.py.
function expectAlone(w, r, apart, y, n, [mean, spread], start) {
  const half = n / 2;
  const precision = spread ** -2;
  const { x, curvature, leverage, seen } = mostProbable(apart, y, half, mean, precision, start);
  const third = half * (leverage * (1 - leverage) * (1 - 2 * leverage) - seen);
  const logMean = x + clamp((1 + third / curvature) / (2 * curvature), -1, 1);
  const share = clamp(w * r, 0, 1);
  const way = (RELAXATION * (half * share ** 2 + precision)) / (half * share + precision);
  return { x, variance: 1 / curvature, moved: w * (Math.exp(logMean) / w) ** Math.min(way, 1) };
}

const without = (w, r) => r / (1 - Math.min(w * r, 1 - 1e-6));

// Resistances r of all atoms in the graph of the expected weights and the ground, and those of pairs without their atoms.
function resist({ positive, negative }, weight, ground, y, m, pairs, kinds) {
  const expected = (share, seen) => share.map((x, e) => Math.max(x * weight[e], LEAST / (m * seen[e])));
  const sum = kinds.signed ? expected(negative, y.sum) : new Float64Array(weight.length);
  const w = { difference: expected(positive, y.difference), sum, ground };
  const r = resistances(w, m, pairs, !kinds.signed && !kinds.selfLoops);
  const apart = (kind) => r[kind].map((x, e) => without(w[kind][e], x));
  return { r, apart: { difference: apart("difference"), sum: apart("sum") } };
}

// Where weights and ground begin to settle: at the most likely ones, with next to no ground of which little is known.
function firstRest({ positive, negative }, share, { w, y }, kinds) {
  const weight = share.map((p, e) => Math.max(p * w.difference[e] + (1 - p) * w.sum[e], 1e-9));
  const [middle, spread] = meanAndSpread(positive.map((x, e) => x + negative[e]), weight.map(Math.log));
  const ground = kinds.selfLoops ? w.ground.map((c) => Math.max(c, LEAST_GROUND)) : w.ground;
  return { weight, ground, law: [middle, clamp(spread, ...SPREADS)], groundLaw: [-mean(y.ground.map(Math.log)) - 2, 2] };
}

// Weights and ground that agree with the data and with each other, if the probabilities of edges are right, and the laws of
// their logarithms. They go on from those of the look before. See `settle` in looks.py.
function settle(found, known, before, m, pairs, kinds, nSteps) {
  const { positive, negative } = found;
  const { y, nPair } = known;
  const E = positive.length;
  const q = Float64Array.from([...positive, ...negative]);
  const share = positive.map((x, e) => x / Math.max(x + negative[e], 1e-12));
  const n = mean(nPair);
  let { weight, ground, law, groundLaw } = before ?? firstRest(found, share, known, kinds);
  const x = new Array(2 * E).fill(null);
  const xGround = new Array(m).fill(null);
  for (let step = 0; step < nSteps; step++) {
    const { r, apart } = resist(found, weight, ground, y, m, pairs, kinds);
    const variance = new Float64Array(2 * E);
    const move = (kind, e, k) => {
      const alone = expectAlone(weight[e], r[kind][e], apart[kind][e], y[kind][e], nPair[e], law, x[k]);
      x[k] = alone.x;
      variance[k] = alone.variance;
      return alone.moved;
    };
    weight = share.map((p, e) => p * move("difference", e, e) + (1 - p) * move("sum", e, e + E));
    law = momentsOfLaw(q, Float64Array.from(x), variance, SPREADS);
    const groundVariance = new Float64Array(m);
    ground = ground.map((c, k) => {
      const alone = expectAlone(c, r.ground[k], without(c, r.ground[k]), y.ground[k], n, groundLaw, xGround[k]);
      xGround[k] = alone.x;
      groundVariance[k] = alone.variance;
      return kinds.selfLoops ? alone.moved : c;
    });
    groundLaw = momentsOfLaw(new Float64Array(m).fill(1), Float64Array.from(xGround), groundVariance, GROUND_SPREADS);
  }
  return { weight, ground, law, groundLaw };
}

// What an estimate of all other pairs leaves unexplained of each pair: features told (E, 21), and the likeliest weights of a
// pair's two atoms given the others. See `explain_away` in looks.py.
function explainAway({ rest, ...found }, { y, nPair }, m, pairs, kinds) {
  const { positive, negative, logit, weight } = found;
  const E = weight.length;
  const usual = { difference: (total(positive) + 0.5) / (E + 1.5), sum: (total(negative) + 0.5) / (E + 1.5) };
  const none = 1 - usual.difference - usual.sum;
  const { r, apart } = resist(found, rest.weight, rest.ground, y, m, pairs, kinds);
  const [middle, spread] = rest.law;
  const [typicalGround, groundSpread] = rest.groundLaw;
  const groundShare = rest.ground.map((c, k) => clamp(c * r.ground[k], 0, 1));
  const typical = Math.exp(middle);
  const ofGraph = [Math.log(spread) / 2, Math.log(usual.difference / none) / 3, Math.log(usual.sum / none) / 3];
  const ofGround = [Math.log(groundSpread) / 2, clamp((typicalGround - middle) / 3, -4, 4)];
  const ratio = (x) => clamp(Math.log(x / typical), -6, 6) / 3;
  const told = new Float64Array(N_TOLD * E);
  const alone = { difference: new Float64Array(E), sum: new Float64Array(E) };
  for (let e = 0; e < E; e++) {
    const n = nPair[e];
    const to = N_TOLD * e;
    ["difference", "sum"].forEach((kind, k) => {
      const seen = y[kind][e];
      const withoutIt = apart[kind][e];
      const q = clamp(Math.log(Math.max(withoutIt / seen, 1e-30)), -5, 30);
      const best = Math.max(1 / seen - 1 / withoutIt, 1e-12);
      const score = Math.sign(q) * Math.sqrt(n * Math.max(Math.exp(-q) - 1 + q, 0));
      const gain = (d) => (n / 2) * (Math.log1p(d * withoutIt) - d * seen);
      const { evidence, likely } = weighEvidence(withoutIt, seen, n, middle, spread);
      alone[kind][e] = best;
      if (k === 1 && !kinds.signed) return;
      told.set([...[score, gain(weight[e]), gain(typical)].map(Math.asinh), ratio(best)], to + 4 * k);
      told.set([clamp(Math.log(usual[kind] / none) + evidence, -12, 12) / 3, ratio(likely)], to + 11 + 2 * k);
    });
    told.set([clamp(logit[2 * e], -12, 12) / 3, clamp(logit[2 * e + 1], -12, 12) / 3, ratio(weight[e])], to + 8);
    told.set([...ofGraph, (groundShare[pairs[0][e]] + groundShare[pairs[1][e]]) / 2, ...ofGround], to + 15);
  }
  return { told, alone };
}

// {positive, negative, weight}, each (E,), from second moments S (m, m) of n signals, a number or (m, m).
// kinds: {signed, selfLoops}
function estimate(S, n, network, kinds, report = () => {}) {
  const m = Math.round(Math.sqrt(S.length));
  const pairs = allPairs(m);
  const filled = fillMissingDirection(S, typeof n === "number" ? n : mean(n), m);
  const known = describe(filled, n, m, pairs, kinds, network.nUpdates, (share) => report(0.4 * share));
  const atNodes = linear(network.nodes, known.nodes);
  const h = linear(network.embed, known.x);
  let alone = known.w;
  let rest = null;
  const judge = () => {
    const logit = perceptron(network.edge, h);
    if (!kinds.signed) for (let e = 1; e < logit.length; e += 2) logit[e] = -30;
    const found = { ...probabilities(logit), logit };
    rest = settle(found, known, rest, m, pairs, kinds, network.nSteps);
    return { ...found, rest, weight: weigh(network.size, h, found, known, alone, rest) };
  };
  const nPlain = network.rounds.length - network.looks.length;
  network.rounds.forEach((round, k) => {
    if (k >= nPlain) {
      const look = explainAway(judge(), known, m, pairs, kinds);
      alone = look.alone;
      const change = linear(network.looks[k - nPlain], look.told);
      for (let c = 0; c < h.length; c++) h[c] += change[c];
    }
    passMessages(round, h, atNodes, known.s, known.count, pairs);
    report(0.4 + (0.4 * (k + 1)) / network.rounds.length);
  });
  const { positive, negative, weight } = judge();
  return { positive, negative, weight: weight.map((x) => x / known.unit) };
}
