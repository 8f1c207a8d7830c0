"""k-NN precision, recall, density, coverage: seconds and memory against prdc on a CPU, and a million against a million on a GPU.

    python benchmarks/bench_knn.py            # CPU: N = 2,000 and 10,000, d = 1280, interleaved with prdc (pip install prdc)
    python benchmarks/bench_knn.py --gpu      # one CUDA device: 100,000 (d = 1280) and 1,000,000 (d = 384), checked in float64

Writes benchmarks/results/knn_<machine>.json as it goes and .md at the end. Every CPU timing is a process of its own, so that its
peak memory is its own; variants take turns, so that a slow minute of the machine falls on all.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DIMS, K = 1280, 4
SIZES = {2_000: 7, 10_000: 3}  # points in each set -> repetitions
VARIANTS = {
    "prdc": "prdc 0.2: open balls, no interval, no ceiling",
    "widen": "the same four numbers: knn_scores(boundary='open', ceiling=None)",
    "widen, k = 3, 4, 5": "three k from one pass",
    "widen, next model": "reference radii cached (KnnReference), as in a sweep",
    "widen, with ceiling": "knn_scores as it comes: intervals and the real-versus-real ceiling",
}


def features(n, seed, scale):
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal((n, DIMS), dtype=np.float32)


def status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def prepare(variant):
    """A function of (reference, generated), warmed up; imports and thread pools are nobody's seconds."""
    if variant == "prdc":
        from prdc import compute_prdc

        def call(x, y):
            with contextlib.redirect_stdout(io.StringIO()):
                return [float(v) for v in compute_prdc(x, y, nearest_k=K).values()]

        return call
    from widen.metrics import knn_scores, knn_scores_by_k

    if variant == "widen":
        return lambda x, y: list(knn_scores(x, y, k=K, boundary="open", ceiling=None))
    if variant == "widen, k = 3, 4, 5":
        return lambda x, y: list(knn_scores_by_k(x, y, ks=(3, K, 5), boundary="open", ceiling=None)[1])
    return lambda x, y: list(knn_scores(x, y, k=K, boundary="open"))


def one(variant, n):
    """Runs in a process of its own: seconds, peak memory above what was there before the call, the four numbers."""
    x, y = features(n, 0, 1.0), features(n, 1, 0.98)
    call = prepare(variant)
    call(x[:64].copy(), y[:64].copy())
    if variant == "widen, next model":
        from widen.metrics import KnnReference

        reference = KnnReference(x, ks=(K,), boundary="open")
        call = lambda _, generated: list(reference.scores(generated)[0])  # noqa: E731
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, start = status("VmRSS"), time.perf_counter()
    four = call(x, y)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "mb": status("VmHWM") - before, "four": four, "gflops": product_rate()}))


def product_rate():
    """GFLOP/s of the plain float32 product that everything here is made of."""
    import torch

    a, out, times = torch.randn(1000, DIMS), torch.empty(1000, 1000), []
    for _ in range(15):
        start = time.perf_counter()
        torch.mm(a, a.T, out=out)
        times.append(time.perf_counter() - start)
    return 2e6 * DIMS / statistics.median(times) / 1e9


def versions():
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    with contextlib.suppress(ImportError):
        import sklearn

        found["scikit-learn"] = sklearn.__version__
    return found


def cpu(results):
    try:
        import prdc  # noqa: F401
    except ImportError:
        sys.exit("prdc is what this compares with: pip install prdc")
    runs = {n: {variant: [] for variant in VARIANTS} for n in SIZES}
    for n, repetitions in SIZES.items():
        for repetition in range(repetitions):
            for variant in VARIANTS:
                command = [sys.executable, __file__, "--one", variant, "--n", str(n)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                runs[n][variant].append(json.loads(done.stdout.splitlines()[-1]))
                last = runs[n][variant][-1]
                print(
                    f"N={n} {repetition + 1}/{repetitions} {variant}: {last['seconds']:.3f} s, {last['mb']:.0f} MB",
                    flush=True,
                )
            results.with_suffix(".json").write_text(
                json.dumps({"machine": machine(), "versions": versions(), "runs": runs}, indent=1)
            )
    write(results, cpu_table(runs))


def cpu_table(runs):
    lines = []
    for n, by_variant in runs.items():
        base = by_variant["prdc"]
        slow, large = (statistics.median(run[what] for run in base) for what in ("seconds", "mb"))
        rate = statistics.median(run["gflops"] for runs in by_variant.values() for run in runs)
        limit = 6 * n * n * DIMS / rate / 1e9
        lines += [
            f"\nN = {n:,} against {n:,}, d = {DIMS}, k = {K}; float32 products run at {rate:.0f} GFLOP/s here, so that the arithmetic alone"
            f" (6 N² d) takes {limit:.2f} s.\n",
            "| | seconds, median (least to most) | prdc / this | peak MB above the inputs | this / prdc | share of the limit |",
            "|---|---|---|---|---|---|",
        ]
        for variant, of in by_variant.items():
            seconds, mb = [run["seconds"] for run in of], statistics.median(run["mb"] for run in of)
            median = statistics.median(seconds)
            share = f"{limit / median:.0%}" if variant in ("widen", "widen, k = 3, 4, 5") else ""
            lines.append(
                f"| {variant} | {median:.3f} ({min(seconds):.3f} to {max(seconds):.3f}) | {slow / median:.1f}x | {mb:.0f} |"
                f" {mb / large:.2f} | {share} |"
            )
        same = by_variant["prdc"][0]["four"] == by_variant["widen"][0]["four"]
        lines.append(
            f"\nThe four numbers of prdc and of widen are {'equal' if same else 'NOT equal'}: {by_variant['widen'][0]['four']}."
        )
    return [*lines, "", *(f"- {name}: {what}" for name, what in VARIANTS.items())]


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}"


def write(results, lines):
    command = "python benchmarks/bench_knn.py" + (" --gpu" if "--gpu" in sys.argv else "")
    head = ["# k-NN precision, recall, density, coverage", "", f"`{command}`", "", machine()]
    text = "\n".join([*head, ", ".join(f"{k} {v}" for k, v in versions().items()), *lines]) + "\n"
    results.with_suffix(".md").write_text(text)
    print(text)


# ---------------------------------------------------------------------------------------------------------------- one GPU


def text_like(n, dims, seed, scale, device):
    """Unit vectors near a 64-dimensional sheet, as sentence embeddings are: neighbours much nearer than strangers."""
    import torch

    shared = torch.Generator(device).manual_seed(0)
    basis = torch.randn(64, dims, generator=shared, device=device) / 8
    own = torch.Generator(device).manual_seed(seed)
    rows = scale * torch.randn(n, 64, generator=own, device=device) @ basis
    rows += 0.2 * torch.randn(n, dims, generator=own, device=device)
    return torch.nn.functional.normalize(rows, dim=1)


def gpu_case(n, dims, device, check_rows):
    """Seconds of every stage; then random rows are checked against float64 differences."""
    import torch

    from widen.metrics.knn_search import membership, squared_radii

    x, y = text_like(n, dims, 1, 1.0, device), text_like(n, dims, 2, 0.9, device)
    seconds = {}

    def timed(stage, work):
        sync(device)
        start = time.perf_counter()
        found = work()
        sync(device)
        seconds[stage] = time.perf_counter() - start
        print(f"  {stage}: {seconds[stage]:.3f} s", flush=True)
        return found

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    r = timed("radii of reference", lambda: squared_radii(x, (K,)))
    s = timed("radii of generated", lambda: squared_radii(y, (K,)))
    found = timed("pairs", lambda: membership(x, y, r, s, boundary="closed"))
    row = {
        "n": n,
        "d": dims,
        "seconds": sum(seconds.values()),
        "stages": seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "precision": float((found.hits[0] > 0).double().mean()),
        "recall": float(found.recalled[0].double().mean()),
        "density": float(found.hits[0].double().mean() / K),
        "coverage": float(found.covered[0].double().mean()),
    }
    print("  " + json.dumps(row), flush=True)
    row["checked"] = check(x, y, r[0], s[0], found, min(check_rows, n))
    print("  " + json.dumps(row["checked"]), flush=True)
    return row


def check(x, y, r, s, found, rows):
    """`rows` random points of each set, their radii and what they met, against all others by float64 differences."""
    import torch

    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(7))[:rows].tolist()
    start, radius_error, wrong, close = time.perf_counter(), 0.0, 0, 0

    def squared(points, row):
        return torch.cat([(piece.double() - row.double()).square_().sum(1) for piece in points.split(1 << 18)])

    for place, i in enumerate(some):
        for points, radii in ((x, r), (y, s)):
            mine = squared(points, points[i])
            mine[i] = torch.inf
            kth = mine.topk(K, largest=False).values.amax()
            radius_error = max(radius_error, float((kth - radii[i]).abs() / kth))
        to_reference, to_generated = squared(x, y[i]), squared(y, x[i])
        for distance, radii in ((to_reference, r), (to_generated, s), (to_generated, r[i])):
            close += int(((distance - radii).abs() <= 1e-13 * distance).sum())
        wrong += int((to_reference <= r).sum()) != int(found.hits[0, i])
        wrong += bool((to_generated <= s).any()) != bool(found.recalled[0, i])
        wrong += bool((to_generated <= r[i]).any()) != bool(found.covered[0, i])
        if (place + 1) % max(1, rows // 5) == 0:
            print(f"  checked {place + 1}/{rows}", flush=True)
    return {
        "rows": rows,
        "largest_relative_radius_error": radius_error,
        "wrong": wrong,
        "pairs_too_close_for_float64": close,
        "seconds": time.perf_counter() - start,
    }


def sync(device):
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def gpu(results, device, cases, check_rows):
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "CPU standing in for a GPU"
    rows = []
    for n, dims in cases:
        print(f"N = {n:,}, d = {dims}, on {name}", flush=True)
        rows.append(gpu_case(n, dims, device, check_rows))
        results.with_suffix(".json").write_text(
            json.dumps({"device": name, "versions": versions(), "rows": rows}, indent=1)
        )
        if rows[-1]["checked"]["wrong"] or rows[-1]["checked"]["largest_relative_radius_error"] > 1e-12:
            sys.exit("a row disagrees with float64: see the JSON")
        if device == "cuda":
            torch.cuda.empty_cache()
    write(results, gpu_table(rows, name))


def gpu_table(rows, name):
    lines = [
        f"\n{name}. Points are unit vectors near a 64-dimensional sheet; k = {K}; both sets are on the device.\n",
        "| N against N | d | seconds | peak GB | rows checked, wrong |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        peak = f"{row['peak_gb']:.1f}" if row["peak_gb"] is not None else ""
        checked = f"{row['checked']['rows']}, {row['checked']['wrong']}"
        lines.append(f"| {row['n']:,} | {row['d']} | {row['seconds']:.2f} | {peak} | {checked} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the large cases, on one CUDA device")
    parser.add_argument("--rehearse", action="store_true", help="with --gpu: the same road in small, on a CPU")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, default=2000, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    if args.one:
        return one(args.one, args.n)
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.gpu:
        return cpu(args.out / f"knn_cpu{os.cpu_count()}")
    if args.rehearse:
        return gpu(args.out / "knn_rehearsal", "cpu", [(3000, 64)], 100)
    import torch

    if not torch.cuda.is_available():
        sys.exit("--gpu needs a CUDA device")
    slug = torch.cuda.get_device_name().lower().replace(" ", "-")
    cases = [(20_000, 384), (20_000, 384), (100_000, 1280), (1_000_000, 384)]  # the first one warms up
    return gpu(args.out / f"knn_{slug}", "cuda", cases, 1000)


if __name__ == "__main__":
    main()
