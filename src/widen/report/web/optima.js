/**
 * Each loss: the weight of a token of probability q, and the distribution it converges to on one context (widen.losses, widen.theory.optima).
 */
"use strict";

const optima = (() => {
  const { sum, tempered, positiveRoot } = theory;
  /** @param {readonly number[]} x @param {(i: number) => number} key */
  const order = (x, key) => x.map((_, i) => i).sort((i, j) => key(i) - key(j) || i - j);

  /**
   * min(q^(1 - alpha), cap) -> P^(1/alpha), rare tokens as NLL where the cap binds.
   * @param {readonly number[]} p
   * @param {number} alpha
   * @param {number} cap
   */
  function cdiv(p, alpha, cap) {
    if (alpha === 0 || cap === Infinity) return tempered(p, alpha);
    /** @param {number} c @param {number} x */
    const law = (c, x) =>
      x === 0 ? 0 : Math.exp(Math.min((Math.log(x) - Math.log(c)) / alpha, Math.log(cap) + Math.log(x) - Math.log(c)));
    const c = positiveRoot((one) => sum(p.map((x) => law(one, x))) - 1);
    const q = p.map((x) => law(c, x)),
      total = sum(q);
    return q.map((x) => x / total);
  }
  /** Water-filling: the m likeliest tokens stay. @param {readonly number[]} p @param {number} gamma */
  function tailr(p, gamma) {
    if (gamma === 1) return tempered(p, 0);
    const down = [...p].sort((x, y) => y - x);
    let m = 1,
      kept = down[0] ?? 1,
      total = 0;
    down.forEach((x, i) => {
      total += x;
      if (x * (1 - gamma + (i + 1) * gamma) > gamma * total) [m, kept] = [i + 1, total];
    });
    return p.map((x) =>
      x >= (down[m - 1] ?? 0) ? Math.max(x / kept + (gamma / (1 - gamma)) * ((m * x) / kept - 1), 0) : 0,
    );
  }
  /**
   * delta of lambda-PR: above it a token is not trained.
   * @param {number} lam
   * @param {number} length
   * @param {number} gamma
   */
  function delta(lam, length, gamma) {
    if (lam === 1) return 1;
    const growth = Math.expm1(-Math.log(lam) / length);
    return gamma + growth > 0 ? gamma / (gamma + growth) : Infinity;
  }
  /**
   * TaiLr's water-filling capped at delta; null where every distribution of at least delta on the support is stationary.
   * @param {readonly number[]} p
   * @param {number} threshold
   * @param {number} gamma
   */
  function lambdaPr(p, threshold, gamma) {
    if (threshold >= 1) return tailr(p, gamma);
    if (p.filter((x) => x > 0).length * threshold < 1 - 1e-12) return null;
    if (gamma === 1)
      return filled(
        p,
        p.map(() => threshold),
      );
    const offset = gamma / (1 - gamma);
    /** @param {number} s */
    const law = (s) => p.map((x) => (x === 0 ? 0 : Math.min(threshold, Math.max(0, s * x - offset))));
    const q = law(1 / positiveRoot((kappa) => sum(law(1 / kappa)) - 1)),
      total = sum(q);
    return q.map((x) => x / total);
  }
  /**
   * Fill to the caps from the likeliest down until the total is 1.
   * @param {readonly number[]} p
   * @param {readonly number[]} caps
   */
  function filled(p, caps) {
    const q = p.map(() => 0);
    let before = 0;
    for (const i of order(p, (k) => -(p[k] ?? 0))) {
      q[i] = Math.max(0, Math.min(1 - before, caps[i] ?? 0));
      before += caps[i] ?? 0;
    }
    return q;
  }
  /** min(delta, P / (1 - drop)). @param {readonly number[]} p @param {number} drop */
  function truncr(p, drop) {
    const up = p.map((x) => x / (1 - drop)).sort((x, y) => x - y);
    let below = 0,
      level = Infinity;
    for (const [i, x] of up.entries()) {
      const share = (1 - below) / (up.length - i);
      if (share <= x * (1 + 1e-15)) {
        level = share;
        break;
      }
      below += x;
    }
    return p.map((x) => Math.min(level, x / (1 - drop)));
  }
  /**
   * The threshold that Trunc (from the top) or TruncR (from the bottom) has while Q = P.
   * @param {readonly number[]} p
   * @param {number} drop
   * @param {1 | -1} side
   */
  function start(p, drop, side) {
    let mass = 0;
    for (const x of [...p].sort((a, b) => side * (b - a))) {
      mass += x;
      if (mass >= 1 - drop - 1e-12) return x;
    }
    return side > 0 ? 0 : 1;
  }
  /** q / (gamma + (1 - gamma) q). @param {number} logq @param {number} gamma */
  const ratio = (logq, gamma) => (gamma === 0 ? 1 : 1 / (1 - gamma + gamma * Math.exp(-logq)));

  /** @type {Record<string, Loss>} */
  const LOSSES = {
    nll: { title: "NLL", params: [], formula: "w = 1", limit: "Converges to the data: Q* = P.", weight: () => 1, optimum: (p) => [...p] },
    gold: {
      title: "GOLD",
      params: [],
      formula: "w = q^½",
      limit: "Converges to Q* ∝ P²: NLL at its matched temperature t = ½.",
      weight: (logq) => Math.exp(logq / 2),
      optimum: (p) => tempered(p, 0.5),
    },
    cdiv: {
      title: "c-Div",
      params: ["alpha", "cap"],
      formula: "w = min(q^(1 − α), cap)",
      limit: "Converges to Q* ∝ P^(1/α): NLL at its matched temperature t = α. Tokens whose weight reaches the cap are treated as NLL treats them.",
      weight: (logq, v) =>
        Math.min(Math.exp((1 - /** @type {number} */ (v.alpha)) * logq), /** @type {number} */ (v.cap)),
      optimum: (p, v) => cdiv(p, /** @type {number} */ (v.alpha), /** @type {number} */ (v.cap)),
    },
    tailr: {
      title: "TaiLr",
      params: ["gamma"],
      formula: "w = q / (γ + (1 − γ) q)",
      limit: "Converges to a sharper distribution (water-filling): the least likely tokens get probability 0.",
      weight: (logq, v) => ratio(logq, /** @type {number} */ (v.gamma)),
      optimum: (p, v) => tailr(p, /** @type {number} */ (v.gamma)),
    },
    lambda_pr: {
      title: "λ-PR",
      params: ["lam", "gamma", "length", "position"],
      formula: "w = λ^((l − 1)/L) · 1[q ≤ δ] · q / (γ + (1 − γ) q)",
      limit: "Converges to TaiLr's distribution, with no token above δ.",
      weight: (logq, v) => {
        const { lam = 1, gamma = 1, length = 1, position = 1 } = v;
        return lam < 1 && logq > Math.log(delta(lam, length, gamma))
          ? 0
          : Math.exp((Math.log(lam) * (position - 1)) / length) * ratio(logq, gamma);
      },
      optimum: (p, v) =>
        lambdaPr(
          p,
          delta(/** @type {number} */ (v.lam), /** @type {number} */ (v.length), /** @type {number} */ (v.gamma)),
          /** @type {number} */ (v.gamma),
        ),
    },
    trunc: {
      title: "Trunc",
      params: ["drop"],
      formula: "w = 1 for the likeliest 1 − Δ of the sequences, else 0. Shown: the threshold while Q = P",
      limit: "Converges to the sharpest Q* with Q* ≤ P / (1 − Δ): the least likely answers get probability 0.",
      weight: (logq, v, p) => Number(logq >= Math.log(start(p, /** @type {number} */ (v.drop), 1)) - 1e-12),
      optimum: (p, v) =>
        filled(
          p,
          p.map((x) => x / (1 - /** @type {number} */ (v.drop))),
        ),
    },
    truncr: {
      title: "TruncR",
      params: ["drop"],
      formula: "w = 1 for the least likely 1 − Δ of the sequences, else 0. Shown: the threshold while Q = P",
      limit: "Converges to the flattest Q* with Q* ≤ P / (1 − Δ): the likeliest answers share one ceiling.",
      weight: (logq, v, p) => Number(logq <= Math.log(start(p, /** @type {number} */ (v.drop), -1)) + 1e-12),
      optimum: (p, v) => truncr(p, /** @type {number} */ (v.drop)),
    },
  };
  return { LOSSES, delta };
})();
