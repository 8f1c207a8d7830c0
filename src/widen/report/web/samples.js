/** Samples side by side at the same prompt, and search. Generated text is data: it only ever becomes a text node. */
"use strict";

widen.panel("samples", (root, /** @type {SamplesData} */ data) => {
  const FIRST = 6,
    MOST_COLUMNS = 12,
    SHORT = 600;
  /** @type {Map<string, Promise<Sample[][]>>} */ const opened = new Map();
  /** @type {HTMLInputElement} */ const needle = widen.find(root, "[data-pick=needle]");
  /** @type {HTMLSelectElement} */ const prompt = widen.find(root, "[data-pick=prompt]");
  const found = widen.find(root, "[data-shown=found]"),
    columns = widen.find(root, "[data-shown=columns]"),
    count = widen.find(root, "[data-shown=count]");
  const runs = boxes(
      "runs",
      data.runs.map((run) => run.label),
      data.chosen_runs,
    ),
    labels = boxes("labels", data.labels, data.chosen_labels);
  let turn = 0;

  /** @param {string} name @param {string[]} names @param {number[]} chosen @returns {HTMLInputElement[]} */
  function boxes(name, names, chosen) {
    const inputs = names.map((_, i) =>
      Object.assign(widen.make("input", { type: "checkbox" }), { checked: chosen.includes(i) }),
    );
    widen
      .find(root, `[data-pick=${name}]`)
      .append(...names.map((text, i) => widen.make("label", {}, /** @type {Node} */ (inputs[i]), text)));
    return inputs;
  }
  /**
   * The samples of one run, one list per cell: gzip inside base64, opened when first asked for.
   * @param {SampleRun} run
   * @returns {Promise<Sample[][]>}
   */
  function open(run) {
    const known = opened.get(run.blob);
    if (known) return known;
    const plain = widen.unpack(run.blob).json();
    opened.set(run.blob, plain);
    return plain;
  }
  /** Text with every place of the needle marked. @param {string} text @param {string} what */
  function marked(text, what) {
    const parts = document.createDocumentFragment();
    const low = text.toLowerCase();
    let at = 0;
    // Lower case can be longer than the text it comes from (İ): then places do not match, and nothing is marked.
    for (
      let next = what && low.length === text.length ? low.indexOf(what) : -1;
      next >= 0;
      next = low.indexOf(what, at)
    ) {
      parts.append(text.slice(at, next), widen.make("mark", {}, text.slice(next, next + what.length)));
      at = next + what.length;
    }
    parts.append(text.slice(at));
    return parts;
  }
  /** @param {Sample} sample @param {string} what */
  function card(sample, what) {
    const [index, text, note, whole] = sample;
    const body = widen.make("pre", { dir: "auto", tabindex: "0" });
    const place = Math.max(0, text.toLowerCase().indexOf(what || "\0") - 200);
    const short = text.length <= SHORT ? text : (place ? "… " : "") + text.slice(place, place + SHORT).toWellFormed();
    body.append(marked(short, what));
    const holder = widen.make("div", { class: "sample" });
    const asked = data.prompts[index];
    if (asked)
      holder.append(widen.make("p", { class: "prompt", dir: "auto", title: asked.slice(0, 500) }, asked.slice(0, 300)));
    holder.append(body);
    if (text.length > SHORT) {
      const more = widen.make(
        "button",
        { type: "button", class: "plain" },
        `all ${text.length.toLocaleString("en")} characters`,
      );
      more.addEventListener("click", () => {
        body.replaceChildren(marked(text, what));
        more.remove();
      });
      holder.append(more);
    }
    if (note) holder.append(widen.make("p", { class: /^right/.test(note) ? "note right" : "note" }, note));
    if (whole > text.length)
      holder.append(
        widen.make("p", { class: "caption" }, `cut here: ${whole.toLocaleString("en")} characters in the file`),
      );
    return holder;
  }
  /** @param {SampleRun} run @param {Cell} cell @param {Sample[]} samples @param {string} what @param {number} asked */
  function column(run, cell, samples, what, asked) {
    const fit = samples.filter(
      ([index, text]) => (asked < 0 || index === asked) && (!what || text.toLowerCase().includes(what)),
    );
    const [kept, drawn, distinct, cut] = [cell.kept, cell.drawn, cell.distinct, cell.cut].map((x) => x.toLocaleString("en"));
    const here = what || asked >= 0 ? `${fit.length} here; ` : "";
    const told = `${here}${kept} kept of ${drawn} drawn, ${distinct} of them different` + (cell.cut ? `, ${cut} cut at max-tokens` : "");
    const holder = widen.make(
      "div",
      { class: "column" },
      widen.make("h3", {}, `${run.label}, ${cell.label}`),
      widen.make("p", { class: "caption" }, told),
    );
    let shown = 0;
    const more = widen.make("button", { type: "button", class: "plain" });
    const add = () => {
      more.remove();
      holder.append(...fit.slice(shown, shown + FIRST).map((sample) => card(sample, what)));
      shown += FIRST;
      more.textContent = `${(fit.length - shown).toLocaleString("en")} more`;
      if (fit.length > shown) holder.append(more);
    };
    more.addEventListener("click", add);
    add();
    return holder;
  }
  /** @param {number} mine @param {string} what @param {number} asked */
  async function search(mine, what, asked) {
    const places = [];
    let total = 0;
    for (const [i, run] of data.runs.entries()) {
      const cells = await open(run);
      if (mine !== turn) return;
      for (const [j, samples] of cells.entries()) {
        const hits = samples.filter(
          ([index, text]) => (asked < 0 || index === asked) && text.toLowerCase().includes(what),
        ).length;
        total += hits;
        if (hits) places.push({ i, label: run.cells[j]?.label ?? "", hits });
      }
    }
    count.textContent = `${total.toLocaleString("en")} found`;
    found.replaceChildren(
      ...places.slice(0, 200).map(({ i, label, hits }) => {
        const button = widen.make(
          "button",
          { type: "button", class: "plain" },
          `${data.runs[i]?.label}, ${label}: ${hits}`,
        );
        button.addEventListener("click", () => {
          runs.forEach((box, n) => (box.checked = n === i));
          labels.forEach((box, n) => (box.checked = data.labels[n] === label));
          show();
        });
        return button;
      }),
    );
  }
  async function show() {
    const mine = ++turn,
      what = needle.value.toLowerCase(),
      asked = prompt.selectedIndex - 1;
    const picked = data.runs
      .flatMap((run, i) => (runs[i]?.checked ? run.cells.map((cell, j) => ({ run, cell, j })) : []))
      .filter(({ cell }) => labels[data.labels.indexOf(cell.label)]?.checked);
    const holders = [];
    for (const { run, cell, j } of picked.slice(0, MOST_COLUMNS)) {
      const samples = (await open(run))[j] ?? [];
      if (mine !== turn) return;
      holders.push(column(run, cell, samples, what, asked));
    }
    if (picked.length > MOST_COLUMNS)
      holders.push(
        widen.make(
          "p",
          { class: "caption" },
          `${picked.length - MOST_COLUMNS} more columns are chosen; ${MOST_COLUMNS} are shown.`,
        ),
      );
    if (!picked.length)
      holders.push(widen.make("p", { class: "caption" }, "Choose at least one model and one decoding."));
    columns.replaceChildren(...holders);
    count.textContent = "";
    found.replaceChildren();
    if (what) await search(mine, what, asked);
  }
  prompt.append(
    widen.make("option", {}, `all prompts (${data.prompts.length})`),
    ...data.prompts.map((text) => widen.make("option", {}, text.slice(0, 120) || "(empty prompt)")),
  );
  let timer = 0;
  root.addEventListener("input", () => {
    count.textContent = needle.value ? "searching" : "";
    clearTimeout(timer);
    timer = window.setTimeout(show, 120);
  });
  new IntersectionObserver(
    (entries, watcher) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        watcher.disconnect();
        show();
      }
    },
    { rootMargin: "300px" },
  ).observe(root);
});
