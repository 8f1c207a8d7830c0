"""The explorer in a real browser: what it computes is widen.theory to 1e-9, and its sliders cannot reach an illegal case."""

import json
import math

import numpy as np
import pytest
import torch
from report_in_browser import ARTIFACTS, overlapping_labels, scroll_through

from widen import losses
from widen.theory import ArtificialCase, TruncatedCase, optima, pr_curve, tempered
from widen.theory.steps import decoded_log

pytestmark = pytest.mark.browser
CLOSE = {"rel": 1e-9, "abs": 1e-9}
VALUES = "Object.fromEntries(Object.entries(v).map(([k, x]) => [k, x === 'inf' ? Infinity : x]))"


@pytest.fixture(scope="module")
def opened(open_page, explorer_page):
    return open_page(explorer_page)


@pytest.fixture
def page(opened):
    return opened.page


def cases():
    """Random cases, and the corners: no lead, all lead, no noise, noise above its balance, the paper's three."""
    rng = np.random.default_rng(0)
    out = [(100, 20, 10, 0.725, 0.15), (100, 50, 25, 0.725, 0.15), (100, 10, 5, 0.525, 0.05)]
    for _ in range(15):
        vocab = int(rng.integers(3, 1000))
        support = int(rng.integers(2, vocab))
        over = int(rng.integers(1, support))
        rho = over / support
        out.append(
            (
                vocab,
                support,
                over,
                float(rho + (1 - rho) * rng.choice([0.0, 1.0, *rng.random(8)])),
                float(rng.choice([0.0, 1e-6, *(rng.random(8) * 0.95)])),
            )
        )
    return out


def test_the_artificial_case_in_the_page_is_widen_theory(page):
    temperatures, lams = [0.1, 0.37, 1.0, 2.5, 10.0], [0.01, 0.3, 1.0, 1.7, 100.0]
    script = """([cases, ts, lams]) => cases.map(([V, K, over, a, epsilon]) => {
      const law = theory.artificial({V, K, rho: over / K, a, epsilon}), text = (x) => String(x);
      return { e: law.epsilon0, t0: text(law.t0), best: lams.map((x) => text(law.best(x))), b: law.b,
        low: ts.map(law.lambdaMin), high: ts.map(law.lambdaMax), area: ts.map(law.area), q: ts.map(law.conditionals),
        p: ts.map((t) => [...lams, Infinity].map((x) => law.precision(x, t))),
        r: ts.map((t) => [0, ...lams].map((x) => law.recall(x, t))) }; })"""
    for given, found in zip(cases(), page.evaluate(script, [cases(), temperatures, lams]), strict=True):
        vocab, support, over, a, epsilon = given
        case = ArtificialCase(vocab=vocab, support=support, rho=over / support, a=a, epsilon=epsilon)
        assert found["e"] == pytest.approx(case.epsilon_0, **CLOSE), given
        assert float(found["t0"].replace("Infinity", "inf")) == pytest.approx(case.t_0, **CLOSE), given
        best = [float(x.replace("Infinity", "inf")) for x in found["best"]]
        assert best == pytest.approx([case.best_temperature(x) for x in lams], **CLOSE), given
        assert found["b"] == pytest.approx(case.b, **CLOSE)
        assert found["low"] == pytest.approx(case.lambda_min(temperatures), **CLOSE)
        assert found["high"] == pytest.approx(case.lambda_max(temperatures), **CLOSE)
        assert found["area"] == pytest.approx([case.curve(t).auc for t in temperatures], **CLOSE), given
        np.testing.assert_allclose(
            found["p"], case.precision([*lams, math.inf], np.array(temperatures)[:, None]), rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(
            found["r"], case.recall([0.0, *lams], np.array(temperatures)[:, None]), rtol=1e-9, atol=1e-9
        )
        for t, laws in zip(temperatures, found["q"], strict=True):
            first, second = case.q(t)
            expected = [first[0], first[support - 1], second[0], second[-1]]
            assert [laws[k] for k in ("over", "under", "kept", "noise")] == pytest.approx(expected, **CLOSE), (given, t)


def steps(order, min_p, t):
    """The decoding as widen.theory takes it."""
    both = (("min_p", min_p), ("temperature", t)) if min_p else (("temperature", t),)
    return both if order == "before" else both[::-1]


def test_truncation_in_the_page_is_widen_theory(page):
    """Both orders, thresholds on either side of every ratio, noise that leads included."""
    temperatures, lams, rng = [0.3, 1.0, 2.5, 100.0], [0.0, 0.3, 1.0, 1.7], np.random.default_rng(1)
    jobs = [
        (*given, min_p, order)
        for given in (*cases(), (10, 8, 4, 0.6, 0.9))
        for min_p in (0.02, float(rng.random()))
        for order in ("before", "after")
    ]
    script = """([jobs, ts, lams]) => jobs.map(([V, K, over, a, epsilon, minP, order]) => {
      const law = theory.artificial({V, K, rho: over / K, a, epsilon}, { minP, order });
      return { separable: law.separable, ratios: [law.noiseRatio, law.rareRatio], q: ts.map(law.conditionals),
        area: ts.map(law.area), p: ts.map((t) => [...lams, Infinity].map((x) => law.precision(x, t))),
        r: ts.map((t) => lams.map((x) => law.recall(x, t))), best: String(law.best(1)) }; })"""
    separable = set()
    for job, found in zip(jobs, page.evaluate(script, [jobs, temperatures, lams]), strict=True):
        vocab, support, over, a, epsilon, min_p, order = job
        case = ArtificialCase(vocab=vocab, support=support, rho=over / support, a=a, epsilon=epsilon)
        separable.add(case.separable)
        assert found["separable"] is case.separable, job
        assert found["ratios"] == pytest.approx([case.noise_ratio, case.rare_ratio], **CLOSE), job
        assert float(found["best"].replace("Infinity", "inf")) == pytest.approx(case.best_temperature(1.0), **CLOSE)
        for t, p, r, area, q in zip(temperatures, *(found[k] for k in ("p", "r", "area", "q")), strict=True):
            truth = TruncatedCase(case=case, steps=steps(order, min_p, t))
            assert p == pytest.approx(truth.precision([*lams, math.inf]), **CLOSE), (job, t)
            assert r == pytest.approx(truth.recall(lams), **CLOSE), (job, t)
            assert area == pytest.approx(truth.curve.auc, **CLOSE), (job, t)
            l1, l2 = (np.exp(decoded_log(lead, truth.steps)) for lead in case.leads())
            left = [l1[0], l1[support - 1], l2[0], l2[-1]]
            assert [q[k] for k in ("over", "under", "kept", "noise")] == pytest.approx(left, **CLOSE), (job, t)
    assert separable == {True, False}


def laws():
    """Zipf laws, ties, zeros, a certain token."""
    for n, s in ((2, 0.0), (5, 1.0), (10, 1.0), (40, 2.5), (17, 0.3)):
        raw = np.arange(1, n + 1.0) ** -s
        yield raw / raw.sum()
    yield np.array([0.5, 0.3, 0.2, 0.0])
    yield np.array([0.25, 0.25, 0.25, 0.25])
    yield np.array([1.0, 0.0])


SPECS = [
    *(("nll", {}), ("gold", {})),
    *(("cdiv", {"alpha": alpha, "cap": cap}) for alpha in (0.0, 0.5, 1.0, 1.4, 3.0) for cap in ("inf", 1e4, 8.0)),
    *(("tailr", {"gamma": gamma}) for gamma in (1e-7, 0.01, 0.2, 0.5, 1.0)),
    *(
        ("lambda_pr", {"lam": lam, "gamma": gamma, "length": 8, "position": 3})
        for lam in (0.1, 0.5, 0.9, 1.0)
        for gamma in (1e-5, 0.1, 0.5, 1.0)
    ),
    *((name, {"drop": drop}) for name in ("trunc", "truncr") for drop in (0.0, 0.1, 0.25, 0.5, 0.9)),
]


def expected_optimum(name, p, v):
    if name == "lambda_pr":
        delta = optima.lambda_pr_threshold(v["lam"], v["length"], v["gamma"])
        if delta < 1 and (p > 0).sum() * delta < 1 - 1e-12:
            return None
        return optima.lambda_pr(p, threshold=delta, gamma=v["gamma"])
    return getattr(optima, name)(p, **{k: float(x) for k, x in v.items()})


def test_what_each_loss_converges_to_in_the_page_is_widen_theory(page):
    jobs = [(name, values, p.tolist()) for name, values in SPECS for p in laws()]
    script = f"(jobs) => jobs.map(([name, v, p]) => optima.LOSSES[name].optimum(p, {VALUES}))"
    for (name, values, p), found in zip(jobs, page.evaluate(script, jobs), strict=True):
        truth = expected_optimum(name, np.array(p), values)
        if truth is None:
            assert found is None, (name, values, p)
        else:
            np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-9, err_msg=f"{name} {values} {p}")


def test_weights_in_the_page_are_those_of_widen_losses(page):
    logq = np.log(10.0) * np.linspace(-12, 0, 61)
    jobs = [(name, values) for name, values in SPECS if name not in ("trunc", "truncr")]
    script = f"([jobs, logq]) => jobs.map(([name, v]) => logq.map((x) => optima.LOSSES[name].weight(x, {VALUES}, [1])))"
    for (name, values), found in zip(jobs, page.evaluate(script, [jobs, logq.tolist()]), strict=True):
        spec = ",".join(f"{k}={x}" for k, x in values.items() if k not in ("length", "position"))
        weight = losses.parse(f"{name}:{spec}" if spec else name)
        place = {name: torch.full((61,), values.get(name, 1)) for name in ("position", "length")}
        np.testing.assert_allclose(
            np.array(found, float),
            weight.weigh(losses.Rows(torch.from_numpy(logq), **place)).numpy(),
            rtol=1e-9,
            err_msg=f"{name} {values}",
        )


def test_curves_of_any_two_laws_and_tempering_are_widen_theory(page):
    pairs = [(p.tolist(), tempered(np.roll(p, 1), t).tolist()) for p in laws() for t in (0.4, 1.0, 3.0)]
    script = """([pairs, lams]) => pairs.map(([p, q]) => {
      const c = theory.prCurve(p, q), warm = [0, 0.4, 2, Infinity].map((t) => theory.tempered(q, t));
      return [lams.map(c.precision), lams.map(c.recall), c.area, warm]; })"""
    lams = [0.05, 0.7, 1.0, 3.0]
    for (p, q), (precision, recall, area, warm) in zip(pairs, page.evaluate(script, [pairs, lams]), strict=True):
        curve = pr_curve(p, q)
        np.testing.assert_allclose(
            [precision, recall], [curve.precision(lams), curve.recall(lams)], rtol=1e-9, atol=1e-12
        )
        assert area == pytest.approx(curve.auc, **CLOSE)
        np.testing.assert_allclose(
            warm, [tempered(np.array(q), t) for t in (0.0, 0.4, 2.0, math.inf)], rtol=1e-9, atol=1e-12
        )


def readings(page):
    return {
        key: float(value.replace("Infinity", "inf"))
        for key, value in page.evaluate(
            "[...document.querySelectorAll('[data-panel=artificial] [data-shown=readings] > div')].map(d => [d.dataset.key, d.dataset.v])"
        )
    }


def now(page, panel="artificial"):
    page.evaluate("new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))")
    return json.loads(page.get_attribute(f"[data-panel={panel}]", "data-state"))


def agrees(page):
    """Every number shown is that of widen.theory for the case that the sliders stand for."""
    state, shown = now(page), readings(page)
    case = ArtificialCase(
        vocab=state["V"], support=state["K"], rho=state["rho"], a=state["a"], epsilon=state["epsilon"]
    )
    t, lam = state["t"], state["lam"]
    decoded = TruncatedCase(case=case, steps=steps(state["order"], state["minP"], t))
    truth = {
        "precision": decoded.precision(lam),
        "recall": decoded.recall(lam),
        "noise_ratio": case.noise_ratio,
        "rare_ratio": case.rare_ratio,
        "area": decoded.curve.auc,
        "support_precision": decoded.precision(math.inf),
        "epsilon_0": case.epsilon_0,
        "t_0": case.t_0,
        "best_temperature": case.best_temperature(lam),
        "b": case.b,
    }
    if not state["minP"]:
        truth |= {"lambda_min": case.lambda_min(t), "lambda_max": case.lambda_max(t)}
    assert {key: shown[key] for key in truth} == pytest.approx(truth, **CLOSE)
    return state


def press(page, key, *keys):
    page.focus(f"[data-panel=artificial] [data-key={key}]")
    for one in keys:
        page.keyboard.press(one)


def test_dragging_moves_every_number_and_curve(page):
    before = agrees(page)
    press(page, "t", *["ArrowRight"] * 4)
    press(page, "lam", *["ArrowLeft"] * 4)
    press(page, "epsilon", "ArrowRight")
    after = agrees(page)
    assert after["t"] > before["t"]
    assert after["lam"] < before["lam"]
    data = page.evaluate(
        "document.querySelector('[data-name=pr-curve] .plot').data.filter(t => t.name === 'chosen decoding').map(t => [t.x, t.y])[0]"
    )
    case = ArtificialCase(
        vocab=after["V"], support=after["K"], rho=after["rho"], a=after["a"], epsilon=after["epsilon"]
    )
    curve = case.curve(after["t"])
    for recall, precision in zip(*data, strict=True):
        lam = precision / recall if recall else math.inf
        assert precision == pytest.approx(curve.precision(lam), abs=1e-9)


@pytest.mark.parametrize(
    "ends",
    [
        ("Home", "Home", "Home", "Home", "Home"),
        ("End", "End", "End", "End", "End"),
        ("Home", "End", "Home", "End", "Home"),
        ("End", "Home", "End", "Home", "End"),
    ],
)
def test_no_slider_can_reach_an_illegal_case(opened, page, ends):
    for key, end in zip(("V", "K", "over", "a", "epsilon"), ends, strict=True):
        press(page, key, end)
    agrees(page)
    for key, end in zip(("epsilon", "a", "over", "K", "V"), ends, strict=True):
        press(page, key, {"Home": "End", "End": "Home"}[end])
    agrees(page)
    assert opened.errors == []


@pytest.mark.parametrize(
    ("button", "t_0", "epsilon_0"),
    [
        ("Half of the tokens right", 2.49707523, 0.275),
        ("A nearly perfect model", 0.76110946, 0.89488335),
        ("Few right tokens", 1.16734751, 0.68577041),
    ],
)
def test_the_papers_cases_are_one_click_away(page, button, t_0, epsilon_0):
    page.get_by_role("button", name=button).click()
    agrees(page)
    shown = readings(page)
    assert (shown["t_0"], shown["epsilon_0"]) == pytest.approx((t_0, epsilon_0), abs=1e-8)


def test_min_p_and_its_order_move_the_case_and_the_sentence_says_what_a_threshold_can_do(page):
    sentence = "[data-shown=threshold]"
    page.get_by_role("button", name="Half of the tokens right").click()
    assert page.text_content(sentence) == (
        "A threshold between 0.176 and 0.379 separates: min-p there removes all wrong tokens and keeps all right ones, and heat then "
        "leads to P."
    )
    press(page, "min_p", "Home", *["PageUp"] * 3)
    press(page, "t", "End")
    state, shown = agrees(page), readings(page)
    assert 0.18 < state["minP"] <= 0.37, state
    assert page.text_content(sentence).endswith("does: now raise t.")
    assert shown["support_precision"] == pytest.approx(1.0)
    assert shown["area"] > 0.99
    page.select_option("[data-key=order]", "after")
    agrees(page)
    assert readings(page)["support_precision"] < 0.6
    assert "keeps all tokens once t is large" in page.text_content(sentence)
    press(page, "epsilon", "End")
    agrees(page)
    assert page.text_content(sentence).startswith("No threshold separates: the loss must change. ")
    times = float(
        page.text_content(sentence).split("A wrong token has ")[1].split(" times the probability of a right one")[0]
    )
    assert times == pytest.approx(readings(page)["noise_ratio"], rel=1e-2)
    press(page, "min_p", "Home")
    page.select_option("[data-key=order]", "before")
    page.get_by_role("button", name="Half of the tokens right").click()


def test_tabs_change_by_keyboard_and_a_loss_shows_its_law(page):
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("[data-panel=losses]")
    assert not page.is_visible("[data-panel=artificial]")
    for loss in ("cdiv", "truncr", "lambda_pr", "trunc", "tailr", "gold", "nll"):
        page.select_option("[data-pick=loss]", loss)
        state = now(page, "losses")
        values = {
            "cdiv": ("alpha", "cap"),
            "truncr": ("drop",),
            "trunc": ("drop",),
            "tailr": ("gamma",),
            "lambda_pr": ("lam", "gamma", "length"),
        }.get(loss, ())
        truth = expected_optimum(loss, np.array(state["p"]), {k: state[k] for k in values})
        np.testing.assert_allclose(state["law"], truth, rtol=1e-9, atol=1e-12)
        assert state["area"] == pytest.approx(pr_curve(state["p"], truth).auc, **CLOSE)
    page.select_option("[data-pick=loss]", "lambda_pr")
    page.focus("[data-panel=losses] [data-key=gamma]")
    page.keyboard.press("Home")
    assert now(page, "losses")["unique"] is False
    assert "training keeps what it starts from" in page.text_content("[data-shown=limit]")


@pytest.mark.parametrize(("name", "width", "scheme"), [("phone", 390, "dark"), ("desktop", 1280, "light")])
def test_both_tabs_fit_a_phone_and_a_desk(opened, page, name, width, scheme):
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for tab in ("losses", "decoding"):
        page.click(f"#{tab}-tab")
        page.wait_for_timeout(100)
        scroll_through(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert overlapping_labels(page) == []
        page.screenshot(path=ARTIFACTS / f"explorer-{tab}-{name}-{scheme}.png", full_page=True)
    assert opened.errors == []
    assert [url[:60] for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
