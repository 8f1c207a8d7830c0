/** The mathematics of widen.theory that the explorer needs, formula by formula; tests hold the two equal to 1e-9. */
"use strict";

const theory = (() => {
  /** log(e^a + e^b). @param {number} a @param {number} b */
  const logaddexp = (a, b) => (a === b ? a + Math.LN2 : Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b))));
  /** @param {readonly number[]} x */
  const sum = (x) => x.reduce((total, one) => total + one, 0);
  /**
   * tau x, with the limits of the tempered distributions where a factor is 0 or infinite.
   * @param {number} tau
   * @param {number} x
   */
  const times = (tau, x) => (x === 0 ? 0 : x === Infinity ? Infinity : tau * x);

  /** The root in (0, inf) of a decreasing function. @param {(x: number) => number} f */
  function positiveRoot(f) {
    let high = 1;
    while (f(high) > 0) high *= 2;
    let low = high / 2;
    while (f(low) < 0 && low > 1e-300) [low, high] = [low / 2, low];
    for (let middle = (low + high) / 2; middle > low && middle < high; middle = (low + high) / 2)
      f(middle) > 0 ? (low = middle) : (high = middle);
    return (low + high) / 2;
  }

  /**
   * p^(1/t) normalised; the argmax at t = 0, uniform on the support at t = inf.
   * @param {readonly number[]} p
   * @param {number} t
   */
  function tempered(p, t) {
    const most = Math.max(...p);
    const raw = p.map((x) =>
      x === 0 ? 0 : t === 0 ? Number(x === most) : Math.exp((Math.log(x) - Math.log(most)) / t),
    );
    const total = sum(raw);
    return raw.map((x) => x / total);
  }

  /** The exact PR curve of two distributions on the same atoms. @param {readonly number[]} p @param {readonly number[]} q */
  function prCurve(p, q) {
    const atoms = p
      .map((x, i) => ({ p: x, q: q[i] ?? 0 }))
      .filter((atom) => atom.p > 0 && atom.q > 0)
      .sort((x, y) => x.q / x.p - y.q / y.p);
    /** @param {number} lam */
    const precision = (lam) => sum(atoms.map((atom) => Math.min(lam * atom.p, atom.q)));
    /** @param {number} lam */
    const recall = (lam) => sum(atoms.map((atom) => (lam === 0 ? atom.p : Math.min(atom.p, atom.q / lam))));
    let below = 0,
      above = sum(atoms.map((atom) => atom.p)),
      area = 0;
    atoms.forEach((atom, k) => {
      below += atom.q;
      above -= atom.p;
      const ratio = atom.q / atom.p,
        next = atoms[k + 1]
          ? /** @type {{p: number, q: number}} */ (atoms[k + 1]).q /
            /** @type {{p: number, q: number}} */ (atoms[k + 1]).p
          : Infinity;
      area +=
        next === Infinity
          ? below ** 2 / ratio
          : below ** 2 * (1 / ratio - 1 / next) + below * above * Math.log(next / ratio);
    });
    return { precision, recall, area };
  }

  /**
   * The artificial case: P uniform on K of V tokens, Q over-represents a share rho of them (mass a) and leaks epsilon.
   * `cut` truncates with min-p, on the model's own distribution or on the heated one; a threshold of 0 keeps every token.
   * @param {Case} c
   * @param {Cut} [cut]
   * @returns {Law}
   */
  function artificial(c, cut = { minP: 0, order: "before" }) {
    const mu = c.rho / (1 - c.rho),
      b = mu * (1 - c.a),
      sparsity = c.K / c.V,
      logNu = Math.log((c.V - c.K) / c.K);
    const gap = c.a > c.rho && b > 0 ? Math.log(c.a / b) : c.a === c.rho ? 0 : Infinity;
    const odds = c.epsilon === 0 ? Infinity : logNu + Math.log1p(-c.epsilon) - Math.log(c.epsilon);
    const logOdds = Math.abs(odds) > 1e-15 ? odds : 0;
    const noiseRatio = Math.exp(-logOdds),
      rareRatio = Math.exp(-gap);
    /**
     * The lead of one group of tokens over another at temperature 1/tau; infinite where min-p drops the other.
     * @param {number} tau
     * @param {number} x
     */
    function lead(tau, x) {
      const heated = x < 0 ? -times(tau, -x) : times(tau, x);
      const drops = Math.exp(-Math.abs(cut.order === "before" ? x : heated)) < cut.minP;
      return drops ? Math.sign(x) * Infinity : heated;
    }
    /** log of the mass on acceptable tokens at l2. @param {number} t */
    const logKept = (t) => -logaddexp(0, logNu - lead(1 / t, logOdds));
    /** log lambda_min, log lambda_max. @param {number} t @returns {[number, number]} */
    function logLevels(t) {
      const kept = logKept(t),
        ahead = lead(1 / t, gap);
      const mean = logaddexp(Math.log(c.rho), Math.log1p(-c.rho) - ahead);
      return [kept - ahead - mean, kept - mean];
    }
    /** @param {number} t */
    const lambdaMin = (t) => Math.exp(logLevels(t)[0]);
    /** @param {number} t */
    const lambdaMax = (t) => Math.exp(logLevels(t)[1]);
    /**
     * rho min(lam, lambda_max) + (1 - rho) min(lam, lambda_min): the three regimes on one line.
     * @param {number} lam
     * @param {number} t
     */
    const precision = (lam, t) => c.rho * Math.min(lam, lambdaMax(t)) + (1 - c.rho) * Math.min(lam, lambdaMin(t));
    /** @param {number} lam @param {number} t */
    function recall(lam, t) {
      const [low, high] = logLevels(t).map((x) => (x === -Infinity ? 0 : Math.min(1, Math.exp(x - Math.log(lam)))));
      return c.rho * /** @type {number} */ (high) + (1 - c.rho) * /** @type {number} */ (low);
    }
    const epsilon0 = gap === Infinity ? 0 : 1 / (1 + Math.exp(-(logNu - (c.rho / (1 - sparsity)) * gap)));
    function peak() {
      if (c.epsilon >= epsilon0 || c.epsilon === 0) return Infinity;
      if (gap === 0) return 0;
      return (
        1 /
        positiveRoot(
          (tau) =>
            logaddexp(0, -tau * gap - Math.log(mu)) +
            Math.log(logOdds) -
            Math.log(gap) -
            logaddexp(0, tau * logOdds - logNu),
        )
      );
    }
    const t0 = peak();
    /** Without truncation, the temperature of greatest recall at lam: min(t_0, where lambda_max has fallen to lam). @param {number} lam */
    function best(lam) {
      if (cut.minP) return artificial(c).best(lam);
      if (logOdds < 0) return Infinity;
      if (lam >= lambdaMax(0)) return 0;
      if (lam <= lambdaMax(Infinity)) return t0;
      return Math.min(t0, 1 / positiveRoot((tau) => Math.log(lam) - logLevels(1 / tau)[1]));
    }
    /**
     * Q^t at l1 and l2: [over-represented, under-represented], [acceptable, noise] probabilities of one token.
     * @param {number} t
     */
    function conditionals(t) {
      const ahead = lead(1 / t, gap),
        over = Math.exp(-logaddexp(Math.log(c.rho), Math.log1p(-c.rho) - ahead)) / c.K,
        kept = Math.exp(logKept(t));
      return { over, under: over * Math.exp(-ahead), kept: kept / c.K, noise: (1 - kept) / (c.V - c.K) };
    }
    /** @param {number} t */
    const area = (t) => prCurve([c.rho, 1 - c.rho], [c.rho * lambdaMax(t), (1 - c.rho) * lambdaMin(t)]).area;
    return {
      ...{ b, sparsity, noiseRatio, rareRatio, separable: noiseRatio < rareRatio, epsilon0, t0, best },
      ...{ lambdaMin, lambdaMax, precision, recall, conditionals, area },
    };
  }

  return { logaddexp, sum, positiveRoot, tempered, prCurve, artificial };
})();
