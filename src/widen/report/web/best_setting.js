/** The best setting for a target: looks up the answer that was computed when the page was made. */
"use strict";

widen.panel("best_setting", (root, /** @type {SettingData} */ data) => {
  /** @type {HTMLInputElement} */ const level = widen.find(root, "[data-pick=level]");
  /** @type {HTMLSelectElement} */ const kind = widen.find(root, "[data-pick=kind]");
  /** @type {HTMLInputElement} */ const shared = widen.find(root, "[data-pick=shared]");
  kind.append(...data.kinds.map((one) => widen.make("option", {}, one.kind)));
  let shown = "";

  /** Text with what stands between backticks as code. @param {string} text */
  const coded = (text) => text.split("`").map((part, i) => (i % 2 ? widen.make("code", {}, part) : part));

  function show() {
    const one = data.kinds[kind.selectedIndex],
      want = /** @type {"recall" | "precision"} */ (widen.find(root, "input[name=target]:checked").value);
    if (!one) return;
    const { levels, all, shared: common } = one.targets[want];
    // Another target or score has other levels: start at 90 %, or at the highest level below it.
    if (shown !== kind.value + want) {
      shown = kind.value + want;
      level.max = String(levels.length - 1);
      level.value = String(Math.max(0, levels.filter((x) => x <= 90).length - 1));
    }
    const answer = one.answers[(shared.checked && common ? common : all)[Number(level.value)] ?? -1];
    if (!answer) return;
    widen
      .find(root, "tbody")
      .replaceChildren(
        ...answer.rows.map((row, i) =>
          widen.make(
            "tr",
            i === 0 && row[1] !== "–" ? { class: "best" } : {},
            ...row.map((text, k) =>
              k === 1 ? widen.make("td", { class: "text spec" }, text) : widen.make("td", {}, text),
            ),
          ),
        ),
      );
    widen
      .find(root, "[data-shown=answer]")
      .replaceChildren(...answer.sentences.map((text) => widen.make("p", { class: "answer" }, ...coded(text))));
    const grids = widen.find(root, "[data-shown=grids]");
    grids.hidden = !one.grids || shared.checked;
    widen.find(root, "[data-pick=shared]").parentElement.hidden = !one.grids;
    grids.textContent =
      `The models were searched over different numbers of decodings (${one.grids}). ` +
      "More settings flatter a model; “only decodings that every model has” compares them alike.";
    const least = `${want === "recall" ? "precision" : "recall"} ${((levels[Number(level.value)] ?? 0) / 100).toFixed(2)}`;
    widen.find(root, "[data-shown=level]").textContent = least;
    level.setAttribute("aria-valuetext", least);
  }
  root.addEventListener("input", show);
  show();
});
