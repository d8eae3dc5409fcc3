"use strict";

// From a table X (n, m), row by row, NaN for what is missing, to second moments, as helpers/beyond/moments.py has them.

const N_STEPS = 20; // of the EM algorithm
const WHITE = 0.1; // of a signal per column: what is added to second moments before they fill gaps
const MIN_VALUES = 3; // rows that a pair of columns must have in common: two points always lie on a line

// The columns centred and, if wished, divided by their standard deviation, over the values that there are.
function centre(X, m, standardise) {
  const n = X.length / m;
  const Z = Float64Array.from(X);
  for (let j = 0; j < m; j++) {
    let known = 0;
    let sum = 0;
    for (let i = 0; i < n; i++) if (!Number.isNaN(X[i * m + j])) (known++, (sum += X[i * m + j]));
    let square = 0;
    for (let i = 0; i < n; i++) {
      Z[i * m + j] -= sum / known;
      square += Number.isNaN(Z[i * m + j]) ? 0 : Z[i * m + j] ** 2 / known;
    }
    if (standardise) for (let i = 0; i < n; i++) Z[i * m + j] /= Math.sqrt(square);
  }
  return Z;
}

// A'B (m, m) of tables A and B (n, m).
function products(A, B, m) {
  const S = new Float64Array(m * m);
  for (let row = 0; row < A.length; row += m) {
    for (let i = 0; i < m; i++) {
      const x = A[row + i];
      if (x === 0) continue;
      for (let j = 0; j < m; j++) S[i * m + j] += x * B[row + j];
    }
  }
  return S;
}

// {S (m, m), n}, n the number of rows that S is worth: a number or, where there are gaps, (m, m).
function tableMoments(X, m, standardise) {
  const Z = centre(X, m, standardise);
  const rows = X.length / m;
  if (!Z.some(Number.isNaN)) {
    return { S: products(Z, Z, m).map((x) => x / (rows - 1)), n: rows - 1 }; // a mean that was estimated costs a row
  }
  const known = Z.map((x) => (Number.isNaN(x) ? 0 : 1));
  const filled = Z.map((x) => (Number.isNaN(x) ? 0 : x));
  const counts = products(known, known, m);
  const squares = products(filled.map((x) => x * x), known, m); // of column i, over the rows that have j
  const cross = products(filled, filled, m);
  const R = cross.map((x, k) => {
    const i = Math.floor(k / m);
    const j = k % m;
    const size = Math.sqrt(squares[k] * squares[j * m + i]);
    return i === j ? 1 : counts[k] >= MIN_VALUES && size > 0 ? x / size : 0;
  });
  const d = reconcile(squares, counts, m);
  const start = clipEigenvalues(R, m);
  const columns = (scale) => (x, k) => x * scale(Math.floor(k / m)) * scale(k % m);
  const S = mostLikelyMoments(filled.map((x, k) => x / d[k % m]), known, start, m);
  const lost = diagonalOf(counts, m).map((x) => Math.sqrt(x / (x - 1)));
  return { S: S.map(columns((i) => d[i] * lost[i])), n: counts.map((x) => Math.max(x - 1, 1)) };
}

// Second moments (m, m) of a normal law that make the known values of Z (n, m) likely, by the EM algorithm from S: fill
// the gaps by their expectations, take the moments of the table, add the covariances of what was filled.
function mostLikelyMoments(Z, known, S, m) {
  const n = Z.length / m;
  const mean = new Float64Array(m);
  for (let step = 0; step < N_STEPS; step++) {
    const d = diagonalOf(S, m).map(Math.sqrt);
    const K = inverse(correlationsWithWhite(S, n / (1 + WHITE * m), m), m);
    const X = Z.map((x, k) => (known[k] ? x - mean[k % m] : 0));
    const covariance = fill(X, known, K.map((x, k) => x / (d[Math.floor(k / m)] * d[k % m])), m);
    const off = new Float64Array(m);
    X.forEach((x, k) => (off[k % m] += x / n));
    off.forEach((x, i) => (mean[i] += x));
    const centred = X.map((x, k) => x - off[k % m]);
    S = products(centred, centred, m).map((x, k) => (x + covariance[k]) / n);
  }
  return S;
}

// Replace what is not known in X (n, m), in place, by its expectation under N(0, K^-1); the sum of its covariances (m, m).
function fill(X, known, K, m) {
  const covariance = new Float64Array(m * m);
  for (let row = 0; row < X.length; row += m) {
    const gaps = [...Array(m).keys()].filter((i) => !known[row + i]);
    if (gaps.length === 0) continue;
    const size = gaps.length;
    const inverted = inverse(Float64Array.from({ length: size * size }, (_, k) => K[gaps[Math.floor(k / size)] * m + gaps[k % size]]), size);
    const told = gaps.map((i) => -X.subarray(row, row + m).reduce((sum, x, j) => sum + K[i * m + j] * x, 0));
    gaps.forEach((i, a) => {
      X[row + i] = told.reduce((sum, x, b) => sum + inverted[a * size + b] * x, 0);
      gaps.forEach((j, b) => (covariance[i * m + j] += inverted[a * size + b]));
    });
  }
  return covariance;
}

// Standard deviations (m,) whose ratios are those over common rows: log d_i - log d_j, a mean over all j.
function reconcile(squares, counts, m) {
  const log = Float64Array.from({ length: m }, (_, i) => Math.log(squares[i * m + i] / counts[i * m + i]) / 2);
  const level = mean(log);
  return log.map((own, i) => {
    let sum = 0;
    for (let j = 0; j < m; j++) {
      const [a, b] = [squares[i * m + j], squares[j * m + i]];
      sum += counts[i * m + j] >= MIN_VALUES && a > 0 && b > 0 ? Math.log(a / b) / 2 : own - log[j];
    }
    return Math.exp(sum / m + level);
  });
}

// The positive semidefinite matrix nearest to the correlations R, with ones on its diagonal again.
function clipEigenvalues(R, m) {
  const { values, vectors } = eigen(R, m);
  if (Math.min(...values) >= -1e-10 * Math.max(...values)) return R;
  const scaled = vectors.map((x, k) => x * Math.max(values[Math.floor(k / m)], 0));
  const nearest = products(scaled, vectors, m);
  const d = diagonalOf(nearest, m).map(Math.sqrt);
  return nearest.map((x, k) => x / (d[Math.floor(k / m)] * d[k % m]));
}

// S of standardised signals with distances y (E,).
const correlations = (y, m, pairs) => toMatrix(new Float64Array(m).fill(1), y.map((x) => 1 - x / 2), pairs);
