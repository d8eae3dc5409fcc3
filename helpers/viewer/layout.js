"use strict";

// Where nodes are drawn. All nodes repel each other, edges pull their ends together, and a weak spring holds
// everything near the origin. Each step costs n^2 / 2 pairs, half a millisecond for 500 nodes, so that no tree is needed.
class ForceLayout {
  static COLD = 0.001; // the heat at which nodes rest
  static COOLING = 0.977; // per step: 300 steps from 1 to COLD

  // source, target: the ends of the edges; pull: positive numbers, how strongly they are tied
  constructor(n, source, target, pull) {
    this.n = n;
    this.source = source;
    this.target = target;
    this.heat = 1;
    this.held = -1; // the node in the user's hand
    this.x = Float64Array.from({ length: n }, (_, i) => 10 * Math.sqrt(i + 0.5) * Math.cos(2.4 * i)); // a sunflower
    this.y = Float64Array.from({ length: n }, (_, i) => 10 * Math.sqrt(i + 0.5) * Math.sin(2.4 * i));
    this.vx = new Float64Array(n);
    this.vy = new Float64Array(n);
    const total = new Float64Array(n);
    pull.forEach((p, e) => {
      total[source[e]] += p;
      total[target[e]] += p;
    });
    this.stiffness = pull.map((p, e) => p / Math.min(total[source[e]], total[target[e]]));
    this.share = pull.map((_, e) => total[source[e]] / (total[source[e]] + total[target[e]])); // hubs move less
  }

  step() {
    this.repel(40 * this.heat);
    this.attract(30, this.heat);
    for (let i = 0; i < this.n; i++) {
      if (i === this.held) continue;
      this.vx[i] = 0.6 * (this.vx[i] - 0.06 * this.heat * this.x[i]);
      this.vy[i] = 0.6 * (this.vy[i] - 0.06 * this.heat * this.y[i]);
      this.x[i] += this.vx[i];
      this.y[i] += this.vy[i];
    }
    this.heat *= ForceLayout.COOLING;
  }

  keepPlaces(other) {
    this.x.set(other.x);
    this.y.set(other.y);
    this.heat = 0;
  }

  get rests() {
    return this.heat <= ForceLayout.COLD;
  }

  // So many steps, or fewer if it rests before.
  run(steps) {
    for (let k = 0; k < steps && !this.rests; k++) this.step();
  }

  repel(strength) {
    const { n, x, y, vx, vy } = this;
    for (let i = 0; i < n; i++) {
      const xi = x[i];
      const yi = y[i];
      let fx = 0;
      let fy = 0;
      for (let j = 0; j < i; j++) {
        const dx = xi - x[j];
        const dy = yi - y[j];
        const force = strength / (dx * dx + dy * dy + 1);
        fx += force * dx;
        fy += force * dy;
        vx[j] -= force * dx;
        vy[j] -= force * dy;
      }
      vx[i] += fx;
      vy[i] += fy;
    }
  }

  attract(length, heat) {
    const { x, y, vx, vy } = this;
    for (let e = 0; e < this.source.length; e++) {
      const i = this.source[e];
      const j = this.target[e];
      const dx = x[j] + vx[j] - x[i] - vx[i];
      const dy = y[j] + vy[j] - y[i] - vy[i];
      const distance = Math.sqrt(dx * dx + dy * dy) || 1e-6;
      const force = (heat * this.stiffness[e] * (distance - length)) / distance;
      vx[j] -= force * dx * this.share[e];
      vy[j] -= force * dy * this.share[e];
      vx[i] += force * dx * (1 - this.share[e]);
      vy[i] += force * dy * (1 - this.share[e]);
    }
  }
}
