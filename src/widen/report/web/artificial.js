/** The artificial case with every number of it on a slider. */
"use strict";

widen.panel("artificial", (root) => {
  const BLUE = "#0072B2",
    RED = "#D55E00",
    GREEN = "#009E73",
    GREY = "#7F7F7F",
    PINK = "#CC79A7";
  const holder = widen.find(root, "[data-holder=sliders]");
  const [curveFigure, heatFigure, firstFigure, secondFigure] = /** @type {HTMLElement[]} */ ([
    ...root.querySelectorAll("figure"),
  ]);
  if (!curveFigure || !heatFigure || !firstFigure || !secondFigure)
    throw new Error("the artificial panel lacks a figure");
  const later = atNextFrame(show);
  const V = slider(
    holder,
    { key: "V", label: "V: all tokens", from: 10, to: 1000, value: 100, steps: 99, whole: true },
    later,
  );
  const K = slider(
    holder,
    { key: "K", label: "K: right tokens", from: 2, to: 99, value: 20, steps: 97, whole: true },
    later,
  );
  const over = slider(
    holder,
    {
      key: "over",
      label: "ρ: preferred share",
      from: 1,
      to: 19,
      value: 10,
      steps: 18,
      whole: true,
      format: (n) => `${n}/${K.get()} = ${widen.show(n / K.get())}`,
    },
    later,
  );
  const a = slider(holder, { key: "a", label: "a: their probability", from: 0.5, to: 1, value: 0.725, steps: 200 }, later);
  const epsilon = slider(
    holder,
    { key: "epsilon", label: "ε: on wrong tokens", from: 0, to: 0.9, value: 0.15, steps: 180 },
    later,
  );
  const t = slider(
    holder,
    { key: "t", label: "t: temperature", from: 0.1, to: 100, value: 1, steps: 300, log: true },
    later,
  );
  const lam = slider(
    holder,
    { key: "lam", label: "λ: point to read", from: 0.01, to: 100, value: 0.6, steps: 200, log: true },
    later,
  );
  const minP = slider(
    holder,
    {
      key: "min_p",
      label: "min-p",
      from: 0,
      to: 1,
      value: 0,
      steps: 200,
      format: (m) => (m ? widen.show(m) : "off"),
    },
    later,
  );
  const order = widen.make(
    "select",
    { "data-key": "order" },
    widen.make("option", { value: "before" }, "truncate, then heat"),
    widen.make("option", { value: "after" }, "heat, then truncate"),
  );
  order.addEventListener("change", later);
  holder.append(widen.make("label", {}, widen.make("span", { class: "name" }, "order"), order));
  const lams = Array.from({ length: 160 }, (_, i) => Math.tan((Math.PI / 2) * (i / 160)));
  const heats = Array.from({ length: 121 }, (_, i) => 0.1 * 1000 ** (i / 120));

  /** The case that the sliders stand for; ends move so that no illegal one can be set. @returns {Case} */
  function current() {
    K.range(2, V.get() - 1, V.get() - 3);
    over.range(1, K.get() - 1, Math.max(K.get() - 2, 1));
    over.show();
    const rho = over.get() / K.get();
    a.range(rho, 1, 200);
    return { V: V.get(), K: K.get(), rho, a: a.get(), epsilon: epsilon.get() };
  }
  /**
   * @param {string} name
   * @param {number[]} x
   * @param {number[]} y
   * @param {string} color
   * @param {string} [dash]
   * @returns {Trace}
   */
  const line = (name, x, y, color, dash = "solid") => ({
    name,
    x,
    y,
    mode: "lines",
    line: { color, dash, width: 2.2 },
    hovertemplate: "%{x:.3g}, %{y:.3g}<extra>%{fullData.name}</extra>",
  });
  /** @param {string} name @param {number} x @param {string} color @param {string} dash @returns {Trace[]} */
  const post = (name, x, color, dash) =>
    x > 0 && x < Infinity ? [{ ...line(name, [x, x], [0, 1.02], color, dash), line: { color, dash, width: 1.4 } }] : [];

  /**
   * What a threshold can do here, and what the chosen one does.
   * @param {Law} law
   * @param {Cut} cut
   */
  function threshold(law, cut) {
    const noise = widen.show(law.noiseRatio),
      rare = widen.show(law.rareRatio);
    if (!law.separable)
      return (
        `No threshold separates: the loss must change. A wrong token has ${noise} times the probability of a right one beside it, a rare ` +
        `right token ${rare} times. Every min-p that keeps the rare right tokens keeps the wrong ones too.`
      );
    const chosen = !cut.minP
      ? ""
      : cut.order === "after"
        ? ` But min-p now comes after the heat, which makes all tokens alike: it keeps all tokens once t is large.`
        : cut.minP <= law.noiseRatio
          ? ` Your ${widen.show(cut.minP)} is too low: wrong tokens stay.`
          : cut.minP <= law.rareRatio
            ? ` Your ${widen.show(cut.minP)} does: now raise t.`
            : ` Your ${widen.show(cut.minP)} is too high: rare right tokens are lost.`;
    return (
      `A threshold between ${noise} and ${rare} separates: min-p there removes all wrong tokens and keeps all right ones, and heat ` +
      `then leads to P.${chosen}`
    );
  }

  /** @param {Case} c @param {Law} law @param {Cut} cut */
  function draw(c, law, cut) {
    const now = t.get(),
      at = lam.get(),
      unit = { range: [-0.02, 1.02] };
    /** @param {number} heat @param {Law} of */
    const curve = (heat, of) => {
      const all = [...lams, of.lambdaMin(heat), of.lambdaMax(heat)].sort((x, y) => x - y).concat(Infinity);
      return [all.map((x) => (x === Infinity ? 0 : of.recall(x, heat))), all.map((x) => of.precision(x, heat))];
    };
    const [recall = [], precision = []] = curve(now, law),
      [recall1 = [], precision1 = []] = curve(1, theory.artificial(c));
    const ray = at <= 1 ? [1, at] : [1 / at, 1];
    widen.draw(
      /** @type {HTMLElement} */ (curveFigure),
      [
        {
          x: [0, ray[0]],
          y: [0, ray[1]],
          mode: "lines",
          showlegend: false,
          hoverinfo: "skip",
          line: { color: "rgba(128,128,128,.6)", width: 1, dash: "dot" },
        },
        line("the model itself (t = 1)", recall1, precision1, GREY, "dash"),
        line("chosen decoding", recall, precision, BLUE),
        {
          x: [law.recall(at, now)],
          y: [law.precision(at, now)],
          mode: "markers",
          showlegend: false,
          marker: { color: RED, symbol: "circle", size: 11 },
          hoverinfo: "skip",
          cliponaxis: false,
        },
      ],
      {
        title: { text: `Precision and recall at t = ${widen.show(now, 4)}` },
        xaxis: { title: { text: "recall" }, ...unit },
        yaxis: { title: { text: "precision" }, ...unit },
      },
    );
    widen.draw(
      /** @type {HTMLElement} */ (heatFigure),
      [
        line(
          "precision at λ",
          heats,
          heats.map((x) => law.precision(at, x)),
          BLUE,
        ),
        line(
          "recall at λ",
          heats,
          heats.map((x) => law.recall(at, x)),
          RED,
          "dash",
        ),
        line(
          "λmin",
          heats,
          heats.map((x) => law.lambdaMin(x)),
          GREEN,
          "dashdot",
        ),
        ...post("chosen t", now, GREY, "dot"),
        ...(cut.minP ? [] : post("t₀", law.t0, GREEN, "dot")),
        ...(cut.minP ? [] : post("best t for recall at λ", law.best(at), PINK, "dash")),
      ],
      {
        title: { text: "What temperature does" },
        xaxis: { title: { text: "temperature" }, type: "log", range: [-1, 2], tickvals: [0.1, 0.3, 1, 3, 10, 30, 100] },
        yaxis: { title: { text: "value" }, range: [-0.02, 1.05] },
      },
    );
    const law_t = law.conditionals(now),
      p = 1 / c.K,
      x = [0, over.get(), c.K, c.V];
    /** @param {HTMLElement} figure @param {number[]} q @param {number[]} edges @param {string} title */
    const bars = (figure, q, edges, title) =>
      widen.draw(
        figure,
        [
          { ...line("P", [0, c.K, c.K, c.V], [p, p, 0, 0], GREY), fill: "tozeroy", fillcolor: "rgba(127,127,127,.22)" },
          line(
            "Q after decoding",
            edges.flatMap((e, i) => (i === 0 ? [e] : i === edges.length - 1 ? [e] : [e, e])),
            q.flatMap((y) => [y, y]),
            RED,
          ),
        ],
        {
          title: { text: title },
          xaxis: { title: { text: "token" }, range: [0, c.V] },
          yaxis: { title: { text: "probability" }, rangemode: "tozero" },
        },
      );
    bars(/** @type {HTMLElement} */ (firstFigure), [law_t.over, law_t.under, 0], x, "First position: preferred and rare right tokens");
    bars(/** @type {HTMLElement} */ (secondFigure), [law_t.kept, law_t.noise], [0, c.K, c.V], "Second position: right and wrong tokens");
  }
  function show() {
    const c = current(),
      cut = { minP: minP.get(), order: /** @type {"before" | "after"} */ (order.value) },
      law = theory.artificial(c, cut),
      now = t.get(),
      at = lam.get();
    draw(c, law, cut);
    const values = {
      rho: c.rho,
      b: law.b,
      sparsity: law.sparsity,
      precision: law.precision(at, now),
      recall: law.recall(at, now),
      lambda_min: law.lambdaMin(now),
      lambda_max: law.lambdaMax(now),
      epsilon_0: law.epsilon0,
      t_0: law.t0,
      best_temperature: law.best(at),
      area: law.area(now),
      support_precision: law.precision(Infinity, now),
      noise_ratio: law.noiseRatio,
      rare_ratio: law.rareRatio,
    };
    const names = {
      rho: "ρ: preferred share of the right tokens",
      b: "b = ρ(1 − a)/(1 − ρ): counterpart of a for rare right tokens",
      sparsity: "K/V: share of tokens that are right",
      precision: "precision at λ",
      recall: "recall at λ",
      lambda_min: "λmin: up to here recall is 1",
      lambda_max: "λmax: from here precision is highest",
      epsilon_0: "ε₀: critical ε (no min-p)",
      t_0: "t₀: temperature of the largest λmin (no min-p)",
      best_temperature: "best temperature for recall at λ (no min-p)",
      area: "area under the curve",
      support_precision: "share of samples that are right",
      noise_ratio: "wrong token / right token, second position",
      rare_ratio: "rare right token / largest, first position",
    };
    widen
      .find(root, "[data-shown=readings]")
      .replaceChildren(
        ...Object.entries(values).map(([key, value]) =>
          widen.make(
            "div",
            { "data-key": key, "data-v": String(value) },
            widen.make("dt", {}, names[/** @type {keyof typeof names} */ (key)]),
            widen.make("dd", {}, widen.show(value, 5)),
          ),
        ),
      );
    widen.find(root, "[data-shown=threshold]").textContent = threshold(law, cut);
    widen.find(root, "[data-shown=answer]").textContent =
      c.epsilon < law.epsilon0 && c.epsilon > 0
        ? `Temperature alone: ε is below its critical value ε₀, so λmin is largest at t₀ = ${widen.show(law.t0, 4)}. ` +
          "Above t₀, heat lowers both λmin and precision."
        : c.epsilon === 0
          ? "Temperature alone: no probability is on wrong tokens, so heat only evens out the right ones. Recall never falls."
          : "Temperature alone: ε is not below its critical value ε₀, so λmin rises with every temperature, and precision pays for it.";
    root.dataset.state = JSON.stringify({ ...c, ...cut, t: now, lam: at });
  }
  root.addEventListener("click", (event) => {
    const preset = /** @type {HTMLElement} */ (event.target).dataset.preset;
    if (!preset) return;
    const [v = 100, k = 20, rho = 0.5, mass = 0.725, noise = 0.15] = preset.split(",").map(Number);
    V.set(v);
    K.range(2, v - 1, v - 3);
    K.set(k);
    over.range(1, k - 1, k - 2);
    over.set(rho * k);
    a.range(rho, 1, 200);
    a.set(mass);
    epsilon.set(noise);
    show();
  });
  show();
});
