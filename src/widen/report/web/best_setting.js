/** The best setting for a target, over models and decodings, and what of it came from the decoding and what from the loss. */
"use strict";

widen.panel("best_setting", (root, /** @type {SettingData} */ data) => {
  /** @type {HTMLInputElement} */ const level = widen.find(root, "[data-pick=level]");
  /** @type {HTMLSelectElement} */ const kind = widen.find(root, "[data-pick=kind]");
  /** @type {HTMLInputElement} */ const careful = widen.find(root, "[data-pick=careful]");
  /** @type {HTMLInputElement} */ const shared = widen.find(root, "[data-pick=shared]");
  kind.append(...data.kinds.map((one) => widen.make("option", {}, one.kind)));
  const grids = widen.find(root, "[data-shown=grids]"),
    body = widen.find(root, "tbody");

  /** @typedef {"precision" | "recall"} Score */
  /** @param {SettingPoint} point @param {Score} score */
  const low = (point, score) => point[score] - (careful.checked ? (point[`${score}_half`] ?? 0) : 0);
  /** @param {SettingPoint} point @param {Score} score */
  const shown = (point, score) =>
    point[score].toFixed(3) + (point[`${score}_half`] === null ? "" : `\u00a0±\u00a0${point[`${score}_half`]?.toFixed(3)}`);
  /** @param {Gain} gain */
  const signed = ({ value, half }) =>
    `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}` + (half === null ? "" : `\u00a0±\u00a0${half.toFixed(3)}`);

  /** 97.5 % quantile of Student's t, read off the table in 1/freedom. @param {number} freedom */
  function quantile(freedom) {
    const at = (data.student.length - 1) / Math.max(1, freedom),
      i = Math.min(Math.floor(at), data.student.length - 2);
    const [a = 0, b = 0] = data.student.slice(i, i + 2);
    return a + (at - i) * (b - a);
  }
  /** Mean, and variance of the mean. @param {number[]} x */
  function moments(x) {
    const mean = x.reduce((total, one) => total + one, 0) / x.length;
    return { mean, variance: x.reduce((total, one) => total + (one - mean) ** 2, 0) / (x.length - 1) / x.length };
  }
  /**
   * One point less another, with a 95 % interval over seeds: in pairs if both are of the same runs, by Welch otherwise.
   * @param {SettingPoint} one
   * @param {SettingPoint} other
   * @param {Score} score
   * @returns {Gain}
   */
  function gain(one, other, score) {
    const [x, y] = [one.seeds[score], other.seeds[score]],
      value = one[score] - other[score];
    if (one === other) return { value: 0, half: null };
    if (x.length < 2 || y.length < 2) return { value, half: null };
    if (one.line === other.line && String(one.runs) === String(other.runs)) {
      const { variance } = moments(x.map((a, i) => a - (y[i] ?? 0)));
      return { value, half: quantile(x.length - 1) * Math.sqrt(variance) };
    }
    const [a, b] = [moments(x).variance, moments(y).variance];
    const freedom = (a + b) ** 2 / (a ** 2 / (x.length - 1) + b ** 2 / (y.length - 1));
    return { value, half: a + b ? quantile(freedom) * Math.sqrt(a + b) : 0 };
  }

  function show() {
    const want = /** @type {Score} */ (widen.find(root, "input[name=target]:checked").value);
    const given = want === "recall" ? "precision" : "recall",
      least = Number(level.value) / 100;
    const { lines = [], points: every = [] } = data.kinds[kind.selectedIndex] ?? {};
    const sets = new Map(lines.map((line) => [line.name, every.filter((point) => point.line === line.name)]));
    const specs = [...sets.values()].map((points) => new Set(points.map((point) => point.decoding)));
    const alike = specs.every((one) => one.size === specs[0]?.size && [...one].every((spec) => specs[0]?.has(spec)));
    const common = shared.checked
      ? every.filter((point) => specs.every((one) => one.has(point.decoding)))
      : every;
    /** @param {(point: SettingPoint) => boolean} of @returns {SettingPoint | null} */
    const best = (of) =>
      common
        .filter((point) => of(point) && low(point, given) >= least)
        .reduce((/** @type {SettingPoint | null} */ a, b) => (a && low(a, want) >= low(b, want) ? a : b), null);
    const found = lines
      .map((line) => {
        const first = best((point) => point.line === line.name);
        const from = best((point) => point.line === line.nll && point.plain),
          decoded = best((point) => point.line === line.nll);
        const gains = first && from && decoded ? [gain(decoded, from, want), gain(first, decoded, want)] : null;
        if (line.name === line.nll) gains?.pop();
        const settings = common.filter((point) => point.line === line.name).length;
        return { line, first, from, gains, settings };
      })
      .sort((a, b) => (b.first ? low(b.first, want) : -1) - (a.first ? low(a.first, want) : -1));
    const dash = () => widen.make("td", {}, "–");
    /** A decoding that wraps after its commas. @param {SettingPoint} point */
    const spec = (point) =>
      widen.make(
        "td",
        { class: "text spec", "data-v": point.decoding },
        ...point.decoding.split(/(?<=,)/).flatMap((part) => [widen.make("wbr"), part]),
      );
    body.replaceChildren(
      ...found.map(({ line, first, gains, settings }, i) => {
        const scores = /** @type {const} */ (["precision", "recall"]);
        return widen.make(
          "tr",
          i === 0 && first ? { class: "best" } : {},
          widen.make("td", {}, line.name),
          first ? spec(first) : dash(),
          ...scores.map((score) =>
            first ? widen.make("td", { "data-v": String(first[score]) }, shown(first, score)) : dash(),
          ),
          ...[0, 1].map((k) => {
            const one = gains?.[k];
            return one ? widen.make("td", { "data-v": String(one.value) }, signed(one)) : dash();
          }),
          widen.make("td", { "data-v": String(settings) }, String(settings)),
          first ? widen.make("td", { "data-v": String(first.runs.length) }, String(first.runs.length)) : dash(),
        );
      }),
    );
    const top = found[0],
      point = top?.first;
    /** A spec that does not break inside a number. @param {string} text */
    const unbroken = (text) => widen.make("span", { class: "unbroken" }, text);
    widen.find(root, "[data-shown=answer]").replaceChildren(
      ...(point
        ? [
            `Most ${want} with ${given} at least ${least.toFixed(2)}: ${top.line.name} (`,
            unbroken(`${top.line.loss})`),
            " at ",
            unbroken(`${point.decoding},`),
            ` ${want} ${shown(point, want)}, ${given} ${shown(point, given)}, ` +
              `${point.runs.length === 1 ? "a single run" : `${point.runs.length} seeds`}, best of ${top.settings} settings.`,
          ]
        : [`No model reaches ${given} ${least.toFixed(2)} at any measured decoding.`]),
    );
    const [decoding, loss] = top?.gains ?? [];
    const nll = lines.find((line) => line.name === line.nll);
    widen.find(root, "[data-shown=gains]").textContent =
      top?.from && decoding
        ? `Over ${top.line.nll} at temperature alone (${top.from.decoding}, ${want} ${shown(top.from, want)}): ` +
          `decoding ${signed(decoding)}, ${loss ? `loss ${signed(loss)}` : "and no other loss adds to it"}.`
        : point && nll
          ? `${top.line.nll ?? nll.name} at temperature alone does not reach this target, or was not trained alike: there is no gain to show.`
          : "";
    grids.hidden = alike || shared.checked;
    grids.textContent =
      "The models were searched over different decodings (" +
      [...sets].slice(0, 8).map(([name, points]) => `${name}: ${points.length}`).join(", ") +
      (sets.size > 8 ? ", …" : "") +
      "). More settings flatter a model; “only decodings that every model has” compares them alike.";
    widen.find(root, "[data-shown=level]").textContent = `${given} ${least.toFixed(2)}`;
    level.setAttribute("aria-valuetext", `${given} ${least.toFixed(2)}`);
  }
  root.addEventListener("input", show);
  // Start from a target that can be reached: 0.9, or the highest precision of any model.
  const highest = Math.max(0, ...(data.kinds[0]?.points ?? []).map((point) => point.precision));
  level.value = String(Math.min(90, Math.floor(100 * highest)));
  show();
});
