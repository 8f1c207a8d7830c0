/** Pick a loss: its weight against q, the distribution it converges to, and the PR curve of that distribution. */
"use strict";

widen.panel("losses", (root) => {
  const BLUE = "#0072B2",
    RED = "#D55E00",
    GREY = "#7F7F7F";
  const holder = widen.find(root, "[data-holder=sliders]");
  /** @type {HTMLSelectElement} */ const pick = widen.find(root, "[data-pick=loss]");
  const [weightFigure, lawFigure, curveFigure] = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("figure")]);
  if (!weightFigure || !lawFigure || !curveFigure) throw new Error("the losses panel lacks a figure");
  pick.append(
    ...Object.entries(optima.LOSSES).map(([name, loss]) => widen.make("option", { value: name }, loss.title)),
  );
  pick.value = "cdiv";
  const later = atNextFrame(show);
  const params = {
    alpha: slider(holder, { key: "alpha", label: "α: above 1 favours rare tokens", from: 0, to: 3, value: 1.4, steps: 150 }, later),
    cap: slider(
      holder,
      { key: "cap", label: "cap on the weight", from: 1, to: 1e8, value: 10, steps: 160, log: true, last: Infinity },
      later,
    ),
    gamma: slider(holder, { key: "gamma", label: "γ: below it tokens count less", from: 1e-7, to: 1, value: 0.1, steps: 140, log: true }, later),
    lam: slider(holder, { key: "lam", label: "λ: smaller asks for more recall", from: 0.01, to: 1, value: 0.5, steps: 100, log: true }, later),
    length: slider(
      holder,
      { key: "length", label: "L: length of the answer", from: 1, to: 1024, value: 8, steps: 100, log: true, whole: true },
      later,
    ),
    position: slider(
      holder,
      { key: "position", label: "l: position in the answer", from: 1, to: 1024, value: 1, steps: 100, log: true, whole: true },
      later,
    ),
    drop: slider(holder, { key: "drop", label: "Δ: share dropped", from: 0, to: 0.9, value: 0.25, steps: 90 }, later),
  };
  const atoms = slider(
    holder,
    { key: "atoms", label: "tokens in P", from: 2, to: 40, value: 10, steps: 38, whole: true },
    later,
  );
  const fall = slider(holder, { key: "fall", label: "s, where P ∝ 1 / rank^s", from: 0, to: 3, value: 1, steps: 60 }, later);
  const t = slider(
    holder,
    { key: "t", label: "t: sampling temperature", from: 0.1, to: 10, value: 1, steps: 200, log: true },
    later,
  );
  const logq = Array.from({ length: 241 }, (_, i) => (-8 + i / 30) * Math.LN10);
  const lams = Array.from({ length: 120 }, (_, i) => Math.tan((Math.PI / 2) * (i / 120)));

  function show() {
    const name = pick.value,
      loss = /** @type {typeof optima.LOSSES[string]} */ (optima.LOSSES[name]);
    for (const [key, one] of Object.entries(params)) one.holder.hidden = !loss.params.includes(key);
    const values = Object.fromEntries(Object.entries(params).map(([key, one]) => [key, one.get()]));
    values.position = Math.min(/** @type {number} */ (values.position), /** @type {number} */ (values.length));
    const raw = Array.from({ length: atoms.get() }, (_, i) => (i + 1) ** -fall.get()),
      total = theory.sum(raw),
      p = raw.map((x) => x / total);
    const found = loss.optimum(p, values),
      law = theory.tempered(found ?? p, t.get()),
      nll = theory.tempered(p, t.get());
    const weights = logq.map((x) => loss.weight(x, values, p)),
      delta = optima.delta(values.lam ?? 1, values.length ?? 1, values.gamma ?? 1);
    widen.find(root, "[data-shown=formula]").textContent = `${loss.title}: ${loss.formula}`;
    widen.find(root, "[data-shown=limit]").textContent = found
      ? loss.limit
      : `A token above δ = ${widen.show(delta, 3)} is not trained, and here all ${p.length} tokens can lie above δ. ` +
        "Then training keeps what it starts from. Shown: a start from NLL, Q* = P.";
    const curve = theory.prCurve(p, law),
      base = theory.prCurve(p, nll),
      q = logq.map(Math.exp);
    /**
     * @param {string} title
     * @param {string} x
     * @param {string} y
     * @param {object} [more]
     * @param {object} [most]
     * @returns {Layout}
     */
    const layout = (title, x, y, more = {}, most = {}) => ({
      title: { text: title },
      xaxis: { title: { text: x }, ...more },
      yaxis: { title: { text: y }, ...most },
    });
    const seen = weights.filter((w) => w > 0),
      decades = seen.length ? Math.log10(Math.max(1, ...seen) / Math.min(1, ...seen)) : 0;
    widen.draw(
      /** @type {HTMLElement} */ (weightFigure),
      [
        { name: "NLL", x: q, y: q.map(() => 1), mode: "lines", line: { color: GREY, dash: "dash", width: 1.6 } },
        {
          name: `weight of ${loss.title}`,
          x: q,
          y: weights.map((w) => (w > 0 ? w : null)),
          mode: "lines",
          line: { color: BLUE, dash: "solid", width: 2.4 },
          hovertemplate: "q %{x:.2e}<br>weight %{y:.3g}<extra></extra>",
        },
      ],
      layout(
        "How much a token counts",
        "q, probability of the token",
        "weight",
        { type: "log", dtick: 2, exponentformat: "power" },
        { type: "log", exponentformat: "power", dtick: decades < 1.5 ? "D2" : Math.ceil(decades / 6) },
      ),
    );
    const rank = p.map((_, i) => i + 1);
    widen.draw(
      /** @type {HTMLElement} */ (lawFigure),
      [
        { name: "P", type: "bar", mode: "markers", x: rank, y: p, marker: { color: GREY, symbol: "square" } },
        {
          name: `Q* of ${loss.title}`,
          type: "bar",
          mode: "markers",
          x: rank,
          y: law,
          marker: { color: RED, symbol: "square" },
        },
      ],
      layout("What it converges to", "token, by rank", "probability", { dtick: p.length > 12 ? 5 : 1 }),
    );
    /** @param {ReturnType<typeof theory.prCurve>} one */
    const xy = (one) => ({ x: [...lams.map(one.recall), 0], y: [...lams.map(one.precision), one.precision(1e300)] });
    widen.draw(
      /** @type {HTMLElement} */ (curveFigure),
      [
        { name: "NLL", ...xy(base), mode: "lines", line: { color: GREY, dash: "dash", width: 1.8 } },
        {
          name: `curve of ${loss.title}`,
          ...xy(curve),
          mode: "lines",
          line: { color: BLUE, dash: "solid", width: 2.4 },
        },
      ],
      layout(
        "Precision and recall of what it converges to",
        "recall",
        "precision",
        { range: [-0.02, 1.02] },
        { range: [-0.02, 1.02] },
      ),
    );
    const readings = {
      "area under the curve": curve.area,
      "overlap of P and Q* (1 − total variation)": curve.precision(1),
      "recall at λ = 0.1": curve.recall(0.1),
      "precision at λ = 10": curve.precision(10),
      "weight at q = 10⁻⁸": loss.weight(-8 * Math.LN10, values, p),
      ...(name === "lambda_pr" ? { "δ: a token above it is not trained": delta } : {}),
    };
    widen
      .find(root, "[data-shown=readings]")
      .replaceChildren(
        ...Object.entries(readings).map(([key, value]) =>
          widen.make(
            "div",
            { "data-v": String(value) },
            widen.make("dt", {}, key),
            widen.make("dd", {}, widen.show(value, 4)),
          ),
        ),
      );
    root.dataset.state = JSON.stringify({
      loss: name,
      ...values,
      cap: values.cap === Infinity ? "inf" : values.cap,
      p,
      t: t.get(),
      unique: Boolean(found),
      law,
      weights: weights.slice(0, 241),
      area: curve.area,
    });
  }
  pick.addEventListener("change", show);
  show();
});
