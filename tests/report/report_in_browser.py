"""What the browser tests look for: labels that run into each other, figures that have not been painted. No tests here."""

from pathlib import Path

ARTIFACTS = Path(__file__).parent.parent.parent / "artifacts" / "report"
"""Screenshots of the last test run; ignored by git."""

OVERLAPS = """() => {
  const found = [];
  const apart = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) <= 1.5 || Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) <= 1.5;
  const check = (root, selector) => {
    const items = [...root.querySelectorAll(selector)]
      .filter((e) => e.checkVisibility() && e.textContent.trim())
      .map((e) => ({ text: e.textContent.trim().slice(0, 30), box: e.getBoundingClientRect() }))
      .filter((e) => e.box.width);
    items.forEach((a, i) => items.slice(i + 1).forEach((b) => {
      if (!apart(a.box, b.box)) found.push(`${a.text} | ${b.text}`);
    }));
  };
  for (const plot of document.querySelectorAll('.plot')) check(plot, 'svg text');
  for (const group of document.querySelectorAll('.controls')) check(group, ':scope > label, :scope > fieldset');
  for (const group of document.querySelectorAll('.legend, .save, .found, .picks')) check(group, ':scope > *');
  for (const figure of document.querySelectorAll('figure')) {
    check(figure, ':scope > h3, :scope > .legend, :scope > figcaption, :scope > .save');
  }
  return found;
}"""

SCROLL = """async () => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  for (let y = 0; y < document.documentElement.scrollHeight; y += 700) { scrollTo(0, y); await painted(); }
  scrollTo(0, 0);
  await painted();
}"""


def overlapping_labels(page):
    """Pairs of labels that run into each other: tick labels and titles of a figure, controls, legends, captions."""
    return page.evaluate(OVERLAPS)


def scroll_through(page):
    """Past every figure, so that all are painted, and back to the top."""
    page.evaluate(SCROLL)


def plotted(page, name):
    """The lines that a figure shows now, by name."""
    data = page.evaluate(
        "n => document.querySelector(`[data-name=${n}] .plot`).data.map(t => [t.name, t.x, t.y, t.visible, t.mode])",
        name,
    )
    return [dict(zip(("name", "x", "y", "visible", "mode"), row, strict=True)) for row in data]
