"""The hand-written scripts stay small and typed; a page of many runs stays small and whole."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from made_runs import many_runs

from widen.report.run_report import write_report

ROOT = Path(__file__).parent.parent.parent
WEB = ROOT / "src" / "widen" / "report" / "web"


def test_the_hand_written_script_stays_small():
    lines = {path.name: len(path.read_text().splitlines()) for path in WEB.glob("*.js")}
    assert max(lines.values()) <= 400
    assert sum(lines.values()) <= 1900
    assert sum(path.stat().st_size for path in WEB.glob("*.js")) < 80_000


@pytest.mark.slow
def test_its_types_hold_under_the_strict_checker():
    tsc = next(
        (
            str(found)
            for found in [ROOT / "node_modules" / ".bin" / "tsc", shutil.which("tsc")]
            if found and Path(found).exists()
        ),
        None,
    )
    if tsc is None:
        pytest.skip("needs TypeScript: npm install (in the repository's root)")
    done = subprocess.run([tsc, "--project", "tsconfig.json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.browser
def test_fifty_runs_by_twenty_temperatures_by_two_thousand_samples_fit_and_open(tmp_path, open_page):
    paths = many_runs(tmp_path, models=10, seeds=5, temperatures=20, num_samples=2000)
    path = write_report(paths, tmp_path / "report.html", figures=False)[0]
    assert path.stat().st_size < 15_000_000
    opened = open_page(path)
    data = json.loads(opened.page.text_content("[data-panel=samples] .panel-data"))
    assert len(data["runs"]) == 50
    assert {cell["drawn"] for run in data["runs"] for cell in run["cells"]} == {2000}
    assert min(cell["kept"] for run in data["runs"] for cell in run["cells"]) >= 50
    assert "of 2,000,000 samples are kept in this page" in opened.page.inner_text("#samples")
    assert opened.errors == []
