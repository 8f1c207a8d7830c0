/** Frontiers: the best decodings of each model, the line of temperature alone, and a zoom to the targets of interest. */
"use strict";

widen.panel("frontier", (root, /** @type {{ kinds: FrontierKind[] }} */ data) => {
  const figure = widen.find(root, "figure"),
    plot = widen.find(figure, ".plot");
  /** @type {HTMLSelectElement} */ const kinds = widen.find(root, "select");
  kinds.append(...data.kinds.map((one) => widen.make("option", {}, one.kind)));
  widen.find(root, "[data-pick=kinds]").hidden = data.kinds.length < 2;
  /** @param {string} name */
  const picked = (name) => widen.find(root, `input[name=${name}]:checked`).value;

  /**
   * Labels that fit: a label is left out if it would touch an earlier one or leave the plot. `taken` holds the earlier boxes in pixels.
   * @param {FrontierPoints} points
   * @param {PlotWindow} range
   * @param {number[][]} taken
   */
  function labels(points, range, taken) {
    const width = (plot.clientWidth || 800) - 80,
      height = (plot.clientHeight || 400) - 70;
    return points.t.map((t, i) => {
      const text = `t=${widen.show(widen.number(t))}`,
        size = 8 * text.length,
        [recall = 0, precision = 0] = [points.recall[i], points.precision[i]];
      const x = ((recall - range.recall[0]) / (range.recall[1] - range.recall[0])) * width,
        y = ((range.precision[1] - precision) / (range.precision[1] - range.precision[0])) * height;
      const [left, right, top, bottom] = [x - size - 6, x, y, y + 22];
      const free =
        left > 0 &&
        right < width &&
        top > 0 &&
        bottom < height &&
        taken.every(([l = 0, r = 0, t = 0, b = 0]) => right < l || left > r || bottom < t || top > b);
      if (free) taken.push([left, right, top, bottom]);
      return free ? text : "";
    });
  }
  /**
   * @param {FrontierLine} line
   * @param {FrontierPoints} points
   * @returns {Trace}
   */
  const trace = (line, points) => ({
    name: line.name,
    x: points.recall,
    y: points.precision,
    customdata: points.decoding,
    meta: { column: "decoding" },
    mode: "lines+markers",
    line: { color: line.color, dash: line.dash, width: 2.2 },
    marker: { symbol: line.symbol, color: line.color, size: 8 },
    error_x: bars(points.recall, points.recall_half, line.color),
    error_y: bars(points.precision, points.precision_half, line.color),
    hovertemplate: "%{customdata}<br>recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
  });
  /**
   * Error bars that end at 0 and 1; `halves` goes to the CSV file as it is.
   * @param {number[]} values @param {(number | null)[]} halves @param {string} color
   */
  function bars(values, halves, color) {
    if (halves.every((half) => half === null)) return null;
    /** @param {number} sign */
    const arm = (sign) =>
      halves.map((half, i) => half && Math.min(half, Math.max(0, sign > 0 ? 1 - (values[i] ?? 0) : (values[i] ?? 0))));
    return { type: "data", symmetric: false, array: arm(1), arrayminus: arm(-1), halves, color, thickness: 1, width: 2 };
  }

  function show() {
    const kind = data.kinds[kinds.selectedIndex];
    if (!kind) return;
    const all = kind.methods && picked("decodings") === "all";
    const range = (picked("range") === "zoom" && kind.zoom) || kind.whole;
    widen.find(root, "[data-pick=decodings]").hidden = !kind.methods;
    widen.find(root, "[data-pick=range]").hidden = !kind.zoom;
    widen.find(root, ".controls").hidden = !kind.methods && !kind.zoom && data.kinds.length < 2;
    /** @type {Trace[]} */ const traces = [];
    /** @type {number[][]} */ const taken = [];
    for (const line of kind.lines) {
      const text = labels(line.temperature, range, taken);
      const look = { text, textposition: "bottom left", textfont: { color: line.color, size: 11 } };
      const heat = { ...trace(line, line.temperature), ...look, mode: "lines+markers+text" };
      if (!all) traces.push(heat);
      else {
        traces.push(trace(line, line.frontier));
        if (line.temperature.t.length)
          traces.push({
            ...heat,
            showlegend: false,
            opacity: 0.7,
            error_x: null,
            error_y: null,
            line: { color: line.color, dash: "dot", width: 1.2 },
            marker: { symbol: "circle", color: line.color, size: 4 },
          });
      }
    }
    for (const star of kind.stars)
      traces.push({
        name: star.name,
        x: [star.recall],
        y: [star.precision],
        customdata: [""],
        mode: "markers",
        marker: { symbol: "star", size: 15, color: "#D55E00", line: { color: "#7F7F7F", width: 1.5 } },
        hovertemplate: "recall %{x:.3f}<br>precision %{y:.3f}<extra>%{fullData.name}</extra>",
      });
    if (kind.ceiling !== null)
      traces.push({
        name: `recall of the reference itself, ${kind.ceiling.toFixed(3)}`,
        x: [kind.ceiling, kind.ceiling],
        y: kind.whole.precision,
        customdata: ["", ""],
        mode: "lines",
        line: { color: "#7F7F7F", dash: "dot", width: 1.5 },
        hoverinfo: "name",
      });
    widen.find(figure, "h3").textContent = `Frontiers (${kind.kind}), ${all ? "all decodings" : "temperature alone"}`;
    widen.find(figure, "figcaption").textContent =
      (all
        ? "Thick: the best of all decodings. Thin and dotted: temperature alone. "
        : "Temperature runs along each line. ") + kind.caption;
    plot.setAttribute("aria-label", `${widen.find(figure, "h3").textContent}. ${kind.caption}`);
    widen.draw(figure, traces, {
      title: { text: `Frontiers (${kind.kind})` },
      xaxis: { title: { text: "recall (coverage)" }, range: range.recall },
      yaxis: { title: { text: "precision (quality)" }, range: range.precision },
    });
  }
  root.addEventListener("change", show);
  addEventListener("resize", show);
  show();
});
