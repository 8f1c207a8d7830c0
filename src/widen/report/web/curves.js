/** PR curves at a chosen decoding, and where a chosen lambda sits on each. */
"use strict";

widen.panel("curves", (root, /** @type {CurvesData} */ data) => {
  const lams = data.lams.map(widen.number),
    decodings = data.decodings;
  const figure = widen.find(root, "figure"),
    body = widen.find(root, "tbody");
  /** @type {HTMLInputElement} */ const pickT = widen.find(root, "[data-pick=t]");
  /** @type {HTMLInputElement} */ const pickLam = widen.find(root, "[data-pick=lam]");
  pickT.max = String(decodings.length - 1);
  pickLam.max = String(lams.length - 1);
  const near = decodings.map((one) => Math.abs(Math.log(widen.number(one.t) || 1e-9)));
  pickT.value = String(near.indexOf(Math.min(...near)));
  pickLam.value = String((lams.length - 1) / 2);

  /** The piece of precision = lam * recall inside the unit square. @param {number} lam */
  function ray(lam) {
    const [recall, precision] = lam <= 1 ? [1, lam] : [1 / lam, 1];
    return {
      x: [0, recall],
      y: [0, precision],
      mode: "lines",
      showlegend: false,
      hoverinfo: "skip",
      line: { color: "rgba(128,128,128,.55)", width: 1, dash: "dot" },
    };
  }
  function show() {
    const decoding = decodings[Number(pickT.value)]?.label ?? "",
      k = Number(pickLam.value),
      lam = lams[k] ?? 1;
    /** @type {Trace[]} */ const traces = [ray(lam)];
    const rows = [];
    for (const line of data.lines) {
      const point = line.points.find((one) => one.decoding === decoding);
      if (!point) continue;
      const precision = point.precision[k] ?? 0,
        recall = point.recall[k] ?? 0;
      const look = { color: line.color, symbol: line.symbol };
      traces.push({
        name: line.name,
        x: point.recall,
        y: point.precision,
        customdata: lams.map((x) => widen.show(x)),
        meta: { column: "lambda" },
        mode: "lines",
        line: { color: line.color, dash: line.dash, width: 2.2 },
        marker: look,
        hovertemplate: "recall %{x:.3f}<br>precision %{y:.3f}<br>λ %{customdata}<extra>%{fullData.name}</extra>",
      });
      traces.push({
        name: line.name,
        showlegend: false,
        x: [recall],
        y: [precision],
        customdata: [widen.show(lam)],
        mode: "markers",
        marker: { ...look, size: 11, line: { color: widen.colour("--ground"), width: 1.5 } },
        hoverinfo: "skip",
        cliponaxis: false,
      });
      const numbers = [precision, recall, point.area].map((x) =>
        widen.make("td", { "data-v": String(x) }, x.toFixed(3)),
      );
      rows.push(widen.make("tr", {}, widen.make("td", {}, line.name), ...numbers));
    }
    body.replaceChildren(...rows);
    for (const [input, key, value] of /** @type {[HTMLInputElement, string, string][]} */ ([
      [pickT, "t", decoding],
      [pickLam, "lam", widen.show(lam)],
    ])) {
      widen.find(root, `[data-shown=${key}]`).textContent = value;
      input.setAttribute("aria-valuetext", value);
    }
    const unit = { range: [-0.02, 1.02] };
    widen.draw(figure, traces, {
      title: { text: `PR curves at ${decoding}` },
      xaxis: { title: { text: "recall" }, ...unit },
      yaxis: { title: { text: "precision" }, ...unit },
    });
  }
  pickT.addEventListener("input", show);
  pickLam.addEventListener("input", show);
  show();
});
