/** The best setting for a target: the most of one score among the points that have enough of the other. */
"use strict";

widen.panel("best_setting", (root, /** @type {SettingData} */ data) => {
  /** @type {HTMLInputElement} */ const level = widen.find(root, "[data-pick=level]");
  /** @type {HTMLSelectElement} */ const kind = widen.find(root, "[data-pick=kind]");
  /** @type {HTMLInputElement} */ const careful = widen.find(root, "[data-pick=careful]");
  kind.append(...data.kinds.map((one) => widen.make("option", {}, one.kind)));
  const sentence = widen.find(root, "[data-shown=answer]"),
    body = widen.find(root, "tbody");

  /** @param {SettingPoint} point @param {"precision" | "recall"} score */
  const low = (point, score) => point[score] - (careful.checked ? (point[`${score}_half`] ?? 0) : 0);
  /** @param {SettingPoint} point @param {"precision" | "recall"} score */
  const shown = (point, score) =>
    point[score].toFixed(3) + (point[`${score}_half`] === null ? "" : ` ± ${point[`${score}_half`]?.toFixed(3)}`);

  function show() {
    const want = /** @type {"precision" | "recall"} */ (widen.find(root, "input[name=target]:checked").value);
    const given = want === "recall" ? "precision" : "recall",
      least = Number(level.value) / 100;
    const points = data.kinds[kind.selectedIndex]?.points ?? [];
    const best = [...new Set(points.map((point) => point.line))]
      .map((line) => {
        const reach = points.filter((point) => point.line === line && low(point, given) >= least);
        const first = reach.reduce(
          (/** @type {SettingPoint | null} */ a, b) => (a && low(a, want) >= low(b, want) ? a : b),
          null,
        );
        return { line, first };
      })
      .sort((a, b) => (b.first ? low(b.first, want) : -1) - (a.first ? low(a.first, want) : -1));
    body.replaceChildren(
      ...best.map(({ line, first }, i) => {
        const row = widen.make("tr", i === 0 && first ? { class: "best" } : {}, widen.make("td", {}, line));
        const loss = widen.make("td", { class: "text long" }, points.find((point) => point.line === line)?.loss ?? "");
        if (!first) row.append(...[0, 1, 2, 3].map(() => widen.make("td", {}, "–")), loss);
        else
          row.append(
            widen.make("td", { "data-v": String(widen.number(first.t)) }, first.decoding),
            .../** @type {const} */ (["precision", "recall"]).map((score) =>
              widen.make("td", { "data-v": String(first[score]) }, shown(first, score)),
            ),
            widen.make("td", { "data-v": String(first.seeds) }, String(first.seeds)),
            loss,
          );
        return row;
      }),
    );
    const top = best[0]?.first;
    sentence.textContent = top
      ? `Most ${want} with ${given} at least ${least.toFixed(2)}: ${top.line} (${top.loss}) at ${top.decoding}, ` +
        `${want} ${shown(top, want)}, ${given} ${shown(top, given)}, ` +
        `${top.seeds === 1 ? "a single run" : `${top.seeds} seeds`}.`
      : `No model reaches ${given} ${least.toFixed(2)} at any measured decoding.`;
    widen.find(root, "[data-shown=level]").textContent = `${given} ${least.toFixed(2)}`;
    level.setAttribute("aria-valuetext", `${given} ${least.toFixed(2)}`);
  }
  root.addEventListener("input", show);
  // Start from a target that can be reached: 0.9, or the highest precision of any model.
  const highest = Math.max(0, ...(data.kinds[0]?.points ?? []).map((point) => point.precision));
  level.value = String(Math.min(90, Math.floor(100 * highest)));
  show();
});
