"""How large a report of 50 runs x 20 temperatures x 2,000 samples is, and how fast it opens: `python benchmarks/bench_report_page.py`.

Opens the file in headless Chromium, a fresh context each time. Wall time until the page is ready and until its first figure is
painted, and CPU time of the page's main thread, which a busy machine does not stretch.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "report"))
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
OPENS = 9


def once(browser, uri):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = time.perf_counter()
    page.goto(uri, wait_until="commit")
    page.wait_for_selector("html[data-ready=yes]")
    ready = time.perf_counter() - start
    page.wait_for_selector(".js-plotly-plot .trace")
    painted = time.perf_counter() - start
    metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    context.close()
    return ready, painted, metrics["TaskDuration"]


def main():
    from made_runs import many_runs
    from playwright.sync_api import sync_playwright

    from widen.report.run_report import write_report

    with tempfile.TemporaryDirectory() as folder:
        paths = many_runs(Path(folder), models=10, seeds=5, temperatures=20, num_samples=2000)
        start = time.process_time()
        page = write_report(paths, Path(folder) / "report.html", figures=False)[0]
        writing, size = time.process_time() - start, page.stat().st_size
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
            times = list(zip(*(once(browser, page.as_uri()) for _ in range(OPENS)), strict=True))
            version = browser.version
            browser.close()
    rows = [
        f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |"
        for name, values in zip(("ready, wall s", "first figure, wall s", "main thread, CPU s"), times, strict=True)
    ]
    text = "\n".join(
        [
            "# A report of 50 runs x 20 temperatures x 2,000 samples",
            "",
            f"`python benchmarks/bench_report_page.py`; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.machine()}, "
            f"Python {platform.python_version()}, Chromium {version}; {OPENS} opens.",
            "",
            f"{size / 1e6:.1f} MB; written in {writing:.1f} s of CPU from 2,000,000 samples.",
            "",
            "| until | median | spread |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )
    print(text)
    target = ROOT / "benchmarks" / "results" / f"report_page_{platform.machine()}_{os.cpu_count()}cores.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print(json.dumps({"written": str(target.relative_to(ROOT))}))


if __name__ == "__main__":
    main()
