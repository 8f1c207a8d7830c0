/** The page's own script: figures, legends, exports and tables. Panels register themselves and add the rest. */
"use strict";

const widen = (() => {
  /** @type {Map<string, Show>} */
  const panels = new Map();
  /** @type {Map<HTMLElement, Drawing>} */
  const drawings = new Map();
  /** Names of the lines that are switched off, on every figure of the page. @type {Set<string>} */
  const off = new Set();
  /** Whether plotly is there. */
  let ready = false;
  const DASHES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "8 3 2 3" };
  const SHAPES = {
    circle: "M17 3a4 4 0 1 0 .01 0z",
    square: "M13 3h8v8h-8z",
    diamond: "M17 2l5 5-5 5-5-5z",
    "triangle-up": "M17 2l5 9h-10z",
    cross: "M15.5 2h3v3.5H22v3h-3.5V12h-3V8.5H12v-3h3.5z",
    x: "M13 2l4 3.5L21 2l1 1-3.5 4 3.5 4-1 1-4-3.5L13 12l-1-1 3.5-4L12 3z",
    star: "M17 1l1.6 4H23l-3.4 2.7L21 12l-4-2.6L13 12l1.4-4.3L11 5h4.4z",
    hexagon: "M15 2.5h4l3 4.5-3 4.5h-4L12 7z",
  };

  /** @param {string} name */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  /** JSON has no infinity: it is written as a string. @param {number | string} x */
  const number = (x) => (x === "inf" ? Infinity : Number(x));
  /** @param {number} x @param {number} [digits] */
  const show = (x, digits = 3) =>
    x === Infinity ? "∞" : Number.isInteger(x) ? String(x) : Number(x.toPrecision(digits)).toString();

  /**
   * @template {keyof HTMLElementTagNameMap} T
   * @param {T} tag
   * @param {Record<string, string>} [attributes]
   * @param {(Node | string)[]} children
   */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  /** @param {ParentNode} root @param {string} selector @returns {any} */
  function find(root, selector) {
    const element = root.querySelector(selector);
    if (!element) throw new Error(`the page lacks ${selector}`);
    return element;
  }

  /**
   * The layout in the page's present colours; `paper` is for files, which are read on white.
   * @param {Layout} layout
   * @param {boolean} paper
   */
  function themed(layout, paper) {
    const [ink, grid, line] = paper
      ? ["#1a1a1f", "#e4e4ea", "#8a8a94"]
      : [colour("--ink"), colour("--grid"), colour("--soft")];
    const narrow = !paper && innerWidth < 640;
    /** @type {Layout} */
    const out = {
      ...layout,
      showlegend: paper,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hovermode: "closest",
      font: { family: "system-ui, 'Liberation Sans', sans-serif", size: 13, color: ink },
      paper_bgcolor: paper ? "#ffffff" : "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: paper ? { l: 70, r: 20, t: 50, b: 60 } : { l: 40, r: narrow ? 10 : 16, t: 12, b: 40 },
      title: paper ? layout.title : { text: "" },
      legend: { ...layout.legend, bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { font: { size: 13 } },
    };
    for (const key of Object.keys(layout).filter((k) => /^[xy]axis/.test(k))) {
      const axis = layout[key];
      out[key] = {
        zeroline: false,
        exponentformat: "e",
        ...axis,
        gridcolor: grid,
        linecolor: line,
        tickcolor: line,
        automargin: true,
        nticks: narrow ? 6 : 10,
        title: { ...axis.title, standoff: 8 },
      };
    }
    return out;
  }

  /** A text of the page that is stored as gzip inside base64. @param {string} id */
  function unpack(id) {
    const bytes = Uint8Array.from(atob(find(document, `#${id}`).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }

  /** @param {HTMLElement} figure */
  function paint(figure) {
    const drawing = drawings.get(figure);
    if (!ready || !drawing || !drawing.seen || figure.hidden) return;
    const data = drawing.data.map((trace) => ({ ...trace, visible: !off.has(trace.name ?? "") }));
    Plotly.react(find(figure, ".plot"), data, themed(drawing.layout, false), {
      displayModeBar: false,
      responsive: true,
    });
  }
  /** Paint what was hidden: it may have missed a change of the window's width. @param {HTMLElement} figure */
  function unveil(figure) {
    paint(figure);
    const plot = find(figure, ".plot");
    if (plot.classList.contains("js-plotly-plot") && plot.clientWidth) Plotly.Plots.resize(plot);
  }
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const drawing = drawings.get(/** @type {HTMLElement} */ (entry.target));
        if (!entry.isIntersecting || !drawing || drawing.seen) continue;
        drawing.seen = true;
        paint(/** @type {HTMLElement} */ (entry.target));
      }
    },
    { rootMargin: "400px" },
  );

  /**
   * Give a figure its lines. It is painted when it comes near the screen: fifty unseen figures cost nothing.
   * @param {HTMLElement} figure
   * @param {Trace[]} data
   * @param {Layout} layout
   */
  function draw(figure, data, layout) {
    const known = drawings.get(figure);
    const names = (/** @type {Trace[]} */ traces) =>
      JSON.stringify(traces.map((trace) => [trace.name, trace.showlegend, trace.line, trace.marker?.symbol]));
    const same = known && names(known.data) === names(data);
    drawings.set(figure, { data, layout, seen: known?.seen ?? false });
    if (!same) legend(figure, data);
    if (known) paint(figure);
    else watcher.observe(figure);
  }

  /**
   * Buttons in place of plotly's legend: they wrap on a phone and answer to the keyboard.
   * @param {HTMLElement} figure
   * @param {Trace[]} data
   */
  function legend(figure, data) {
    const named = data.filter((trace) => trace.name && trace.showlegend !== false);
    const holder = find(figure, ".legend");
    holder.replaceChildren(
      ...(named.length < 2
        ? []
        : named.map((trace) => {
            const name = trace.name ?? "";
            const button = make(
              "button",
              { type: "button", "aria-pressed": String(!off.has(name)), title: name },
              swatch(trace),
              make("span", {}, name),
            );
            button.addEventListener("click", () => toggle(name));
            return button;
          })),
    );
  }
  /** @param {Trace} trace */
  function swatch(trace) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 34 14");
    svg.setAttribute("aria-hidden", "true");
    const ink = trace.line?.color ?? trace.marker?.color ?? "currentColor";
    if (trace.mode !== "markers") {
      const line = document.createElementNS(svg.namespaceURI, "path");
      const dash = DASHES[/** @type {keyof typeof DASHES} */ (trace.line?.dash ?? "solid")] ?? "";
      for (const [key, value] of Object.entries({
        d: "M1 7h32",
        stroke: ink,
        "stroke-width": "2.5",
        "stroke-dasharray": dash,
      }))
        line.setAttribute(key, value);
      svg.append(line);
    }
    const shape = SHAPES[/** @type {keyof typeof SHAPES} */ (trace.marker?.symbol ?? "")];
    if (shape) {
      const mark = document.createElementNS(svg.namespaceURI, "path");
      mark.setAttribute("d", shape);
      mark.setAttribute("fill", trace.marker?.color ?? ink);
      svg.append(mark);
    }
    return svg;
  }
  /** @param {string} name */
  function toggle(name) {
    if (!off.delete(name)) off.add(name);
    for (const [figure, drawing] of drawings) {
      if (!drawing.data.some((trace) => trace.name === name)) continue;
      for (const button of figure.querySelectorAll(".legend button"))
        if (button.textContent === name) button.setAttribute("aria-pressed", String(!off.has(name)));
      paint(figure);
    }
  }

  /** @param {string} name @param {string} text @param {string} type */
  function download(name, text, type) {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  /** @param {unknown[][]} rows */
  const csv = (rows) =>
    rows
      .map((row) =>
        row
          .map((cell) => {
            const text = cell === null || cell === undefined ? "" : String(cell);
            return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
          })
          .join(","),
      )
      .join("\r\n") + "\r\n";
  /** One row a point of every line that is shown. @param {HTMLElement} figure */
  function figureCsv(figure) {
    const { data, layout } = /** @type {Drawing} */ (drawings.get(figure));
    const x = layout.xaxis?.title?.text ?? "x",
      y = layout.yaxis?.title?.text ?? "y";
    const more = data.find((trace) => trace.meta?.column)?.meta?.column ?? "";
    const head = [
      "line",
      ...(more ? [more] : []),
      x,
      y,
      ...(data.some((trace) => trace.error_y?.halves)
        ? [`${x}, half width of 95 % interval`, `${y}, half width of 95 % interval`]
        : []),
    ];
    const rows = data
      .filter((trace) => !off.has(trace.name ?? ""))
      .flatMap((trace) =>
        (trace.x ?? []).map((value, i) => [
          trace.name ?? "",
          ...(more ? [trace.customdata?.[i] ?? ""] : []),
          value,
          trace.y?.[i],
          ...(head.length > 3 + (more ? 1 : 0) ? [trace.error_x?.halves?.[i], trace.error_y?.halves?.[i]] : []),
        ]),
      );
    return csv([head, ...rows]);
  }
  /** @param {HTMLElement} figure */
  async function figureSvg(figure) {
    const { data, layout } = /** @type {Drawing} */ (drawings.get(figure));
    const shown = data.filter((trace) => !off.has(trace.name ?? ""));
    const url = await Plotly.toImage(
      { data: shown, layout: { ...themed(layout, true), width: 960, height: 640 } },
      { format: "svg", width: 960, height: 640 },
    );
    return decodeURIComponent(url.slice(url.indexOf(",") + 1));
  }

  /**
   * Sort the rows by one column; what has no value stays last.
   * @param {HTMLTableElement} table
   * @param {number} column
   * @param {boolean} up
   */
  function sort(table, column, up) {
    const body = table.tBodies[0];
    if (!body) return;
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column];
      const text = cell?.textContent ?? "";
      return { row, text, value: number(text.split("\u00a0")[0]?.replace("−", "-") || NaN), empty: text === "–" };
    });
    const numeric = keyed.every((item) => item.empty || !Number.isNaN(item.value));
    keyed.sort(
      (a, b) =>
        Number(a.empty) - Number(b.empty) ||
        (up ? 1 : -1) * (numeric ? a.value - b.value : a.text.localeCompare(b.text, "en", { numeric: true })),
    );
    body.append(...keyed.map((item) => item.row));
    [...(table.tHead?.rows[0]?.cells ?? [])].forEach((head, i) =>
      i === column
        ? head.setAttribute("aria-sort", up ? "ascending" : "descending")
        : head.removeAttribute("aria-sort"),
    );
  }
  /** @param {HTMLTableElement} table */
  const tableCsv = (table) =>
    csv([...table.rows].map((row) => [...row.cells].map((cell) => (cell.textContent === "–" ? "" : cell.textContent))));

  /** @param {MouseEvent} event */
  async function clicked(event) {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    const head = button?.closest("th");
    if (button && head) {
      const table = /** @type {HTMLTableElement} */ (head.closest("table"));
      sort(table, head.cellIndex, head.getAttribute("aria-sort") !== "ascending");
    }
    const kind = button?.dataset.save;
    if (!button || !kind) return;
    const part = /** @type {HTMLElement} */ (button.closest("[data-name]"));
    const name = `${part.dataset.name}.${kind}`;
    if (kind === "svg") download(name, await figureSvg(part), "image/svg+xml");
    else download(name, part.matches("figure") ? figureCsv(part) : tableCsv(find(part, "table")), "text/csv");
  }
  /** Of several figures, show the one that the list names. @param {HTMLSelectElement} select */
  function choose(select) {
    const holder = /** @type {HTMLElement} */ (select.closest(".choice"));
    holder.querySelectorAll("figure").forEach((figure, i) => {
      figure.hidden = i !== select.selectedIndex;
      if (!figure.hidden) unveil(figure);
    });
  }

  /** One section at a time; arrows move between the tabs. @param {HTMLElement[]} tabs */
  function tabbed(tabs) {
    /** @param {number} chosen */
    const select = (chosen) =>
      tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(i === chosen));
        tab.tabIndex = i === chosen ? 0 : -1;
        const section = find(document, `#${tab.getAttribute("aria-controls")}`);
        section.hidden = i !== chosen;
        if (i === chosen) section.querySelectorAll("figure").forEach(unveil);
      });
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => select(i));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = (i + step + tabs.length) % tabs.length;
        select(next);
        tabs[next]?.focus();
      });
    });
  }

  async function start() {
    tabbed([...document.querySelectorAll("[role=tab]")].map((tab) => /** @type {HTMLElement} */ (tab)));
    document.addEventListener("click", clicked);
    for (const data of document.querySelectorAll("script.figure-data")) {
      const { data: traces, layout } = JSON.parse(data.textContent ?? "");
      draw(/** @type {HTMLElement} */ (data.closest("figure")), traces, layout);
    }
    for (const select of document.querySelectorAll(".choice select"))
      select.addEventListener("change", () => choose(/** @type {HTMLSelectElement} */ (select)));
    for (const root of document.querySelectorAll("[data-panel]")) {
      const holder = /** @type {HTMLElement} */ (root);
      const shown = panels.get(holder.dataset.panel ?? "");
      if (shown) shown(holder, JSON.parse(find(holder, "script.panel-data").textContent));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      drawings.forEach((_, figure) => paint(figure)),
    );
    addEventListener("beforeprint", () =>
      drawings.forEach((drawing, figure) => {
        drawing.seen = true;
        paint(figure);
      }),
    );
    // The policy names this script by the hash of its text.
    document.head.append(make("script", {}, await unpack("plotly").text()));
    ready = true;
    drawings.forEach((_, figure) => paint(figure));
    document.documentElement.dataset.ready = "yes";
  }
  addEventListener("DOMContentLoaded", start);

  return {
    panel: (/** @type {string} */ name, /** @type {Show} */ shown) => void panels.set(name, shown),
    draw,
    make,
    find,
    number,
    show,
    sort,
    colour,
    paint,
    unpack,
  };
})();
