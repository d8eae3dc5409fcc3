"use strict";

// Linear algebra for the page "Try it", in double precision. Matrices are Float64Array, row by row; half-vectors (E,) are
// upper triangles, row by row.

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const total = (x) => x.reduce((a, b) => a + b, 0);
const mean = (x) => total(x) / x.length;
const lowerMedian = (x) => Float64Array.from(x).sort()[(x.length - 1) >> 1]; // as torch has it

// The ends of all pairs, [i, j].
function allPairs(m) {
  const i = new Int32Array((m * (m - 1)) / 2);
  const j = new Int32Array(i.length);
  for (let a = 0, e = 0; a < m; a++) for (let b = a + 1; b < m; b++, e++) [i[e], j[e]] = [a, b];
  return [i, j];
}

const diagonalOf = (S, m) => Float64Array.from({ length: m }, (_, k) => S[k * m + k]);
const toVector = (S, m, [i, j]) => Float64Array.from(i, (a, e) => S[a * m + j[e]]);

// The symmetric matrix with this diagonal (m,) and these entries (E,) off it.
function toMatrix(diagonal, x, [i, j]) {
  const m = diagonal.length;
  const S = new Float64Array(m * m);
  for (let k = 0; k < m; k++) S[k * m + k] = diagonal[k];
  for (let e = 0; e < x.length; e++) S[i[e] * m + j[e]] = S[j[e] * m + i[e]] = x[e];
  return S;
}

// The sum over the pairs at every node of x (E, width): (m, width).
function sumAtNodes(x, m, [i, j], width = 1) {
  const sums = new Float64Array(m * width);
  for (let e = 0; e < i.length; e++) {
    const from = e * width;
    const a = i[e] * width;
    const b = j[e] * width;
    for (let k = 0; k < width; k++) {
      sums[a + k] += x[from + k];
      sums[b + k] += x[from + k];
    }
  }
  return sums;
}

// The lower triangle C with C C' = A, or null if A (m, m) is not positive definite.
function cholesky(A, m) {
  const C = new Float64Array(m * m);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j <= i; j++) {
      const p = i * m;
      const q = j * m;
      let sum = A[p + j];
      for (let k = 0; k < j; k++) sum -= C[p + k] * C[q + k];
      if (i === j && !(sum > 0)) return null;
      C[p + j] = i === j ? Math.sqrt(sum) : sum / C[q + j];
    }
  }
  return C;
}

// (C C')^-1 = B'B with B = C^-1.
function choleskyInverse(C, m) {
  const B = new Float64Array(m * m); // lower triangle
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

// The inverse of a positive definite A (m, m).
function inverse(A, m) {
  const C = cholesky(A, m);
  if (!C) throw new Error("These columns depend on each other too closely: leave out copies and sums of others.");
  return choleskyInverse(C, m);
}

// x with C C'x = b.
function choleskySolve(C, b) {
  const m = b.length;
  const x = Float64Array.from(b);
  for (let i = 0; i < m; i++) {
    for (let k = 0; k < i; k++) x[i] -= C[i * m + k] * x[k];
    x[i] /= C[i * m + i];
  }
  for (let i = m - 1; i >= 0; i--) {
    for (let k = i + 1; k < m; k++) x[i] -= C[k * m + i] * x[k];
    x[i] /= C[i * m + i];
  }
  return x;
}

// A B for matrices (m, m); rows of A that are sparse cost little.
function multiply(A, B, m) {
  const product = new Float64Array(m * m);
  for (let i = 0; i < m; i++) {
    for (let k = 0; k < m; k++) {
      const a = A[i * m + k];
      if (a === 0) continue;
      for (let j = 0; j < m; j++) product[i * m + j] += a * B[k * m + j];
    }
  }
  return product;
}

// Eigenvalues (m,) and eigenvectors, one per row, of a symmetric A (m, m), by Jacobi's rotations.
function eigen(A, m) {
  const D = Float64Array.from(A);
  const V = toMatrix(new Float64Array(m).fill(1), [], [[], []]);
  const rotate = (M, p, q, c, s) => {
    for (let k = 0; k < m; k++) {
      const a = M[p * m + k];
      const b = M[q * m + k];
      M[p * m + k] = c * a - s * b;
      M[q * m + k] = s * a + c * b;
    }
  };
  const size = total(A.map((x) => x * x));
  for (let sweep = 0; sweep < 50; sweep++) {
    let off = 0;
    for (let p = 0; p < m; p++) for (let q = 0; q < p; q++) off += D[p * m + q] ** 2;
    if (off <= 1e-26 * size) break;
    for (let p = 0; p < m; p++) {
      for (let q = p + 1; q < m; q++) {
        const [a, b, d] = [D[p * m + p], D[p * m + q], D[q * m + q]];
        if (b * b <= 1e-34 * size) continue;
        const ratio = (d - a) / (2 * b);
        const t = (ratio < 0 ? -1 : 1) / (Math.abs(ratio) + Math.hypot(ratio, 1));
        const c = 1 / Math.hypot(t, 1);
        rotate(D, p, q, c, t * c);
        for (let k = 0; k < m; k++) {
          D[k * m + p] = D[p * m + k];
          D[k * m + q] = D[q * m + k];
        }
        D[p * m + p] = a - t * b;
        D[q * m + q] = d + t * b;
        D[p * m + q] = D[q * m + p] = 0;
        rotate(V, p, q, c, t * c);
      }
    }
  }
  return { values: diagonalOf(D, m), vectors: V };
}
