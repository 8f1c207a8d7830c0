/** A named slider whose positions are whole numbers, so that what is shown is exactly what is used. */
"use strict";

/** @param {HTMLElement} holder @param {SliderSpec} spec @param {() => void} changed */
function slider(holder, spec, changed) {
  let { from, to } = spec;
  const input = widen.make("input", {
    type: "range",
    min: "0",
    max: String(spec.steps),
    step: "1",
    "data-key": spec.key,
  });
  const shown = widen.make("b");
  holder.append(widen.make("label", {}, widen.make("span", { class: "name" }, spec.label, shown), input));
  /** @param {number} x */
  const tidy = (x) => (spec.whole ? Math.round(x) : Number(x.toPrecision(4)));
  function get() {
    const position = Number(input.value),
      share = position / spec.steps;
    if (position === 0) return from;
    if (position === spec.steps) return spec.last ?? to;
    return tidy(spec.log ? from * (to / from) ** share : from + (to - from) * share);
  }
  function show() {
    shown.textContent = spec.format ? spec.format(get()) : widen.show(get(), 4);
    input.setAttribute("aria-valuetext", shown.textContent);
  }
  /** @param {number} x */
  function set(x) {
    const share = spec.log ? Math.log(x / from) / Math.log(to / from) : (x - from) / (to - from);
    input.value = String(Math.max(0, Math.min(spec.steps, Math.round(share * spec.steps))));
    show();
  }
  /** New ends, the value kept as near as they allow. @param {number} low @param {number} high @param {number} steps */
  function range(low, high, steps) {
    const value = get();
    [from, to, spec.steps] = [low, high, steps];
    input.max = String(steps);
    set(Math.min(high, Math.max(low, value)));
  }
  input.addEventListener("input", () => {
    show();
    changed();
  });
  set(spec.value);
  return { get, set, range, show, holder: /** @type {HTMLElement} */ (input.closest("label")) };
}

/** A function that calls ``show`` once at the next frame, however often it is called. @param {() => void} show */
function atNextFrame(show) {
  let waiting = false;
  return () => {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        show();
      });
    }
  };
}
