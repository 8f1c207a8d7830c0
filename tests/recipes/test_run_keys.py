"""Published results stay what they are: a change of defaults moves neither the run folders of recipes nor the windows they used."""

import hashlib

import pytest

from widen.losses.fit import truncs
from widen_recipes import alpaca, demo, mathqa, mathqa_gain, mulmod, writing_prompts

RECIPES = {
    "mulmod": (mulmod.everything, "e486ea69abbe3759"),
    "demo": (demo.fine_tune, "0b7c6ef52bd084b6"),
    "mathqa": (mathqa.olmo1b, "358ca582178ea531"),
    "writing_prompts": (writing_prompts.table, "033db838b54bb0de"),
    "alpaca": (alpaca.stories, "299dbd6b6598c068"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_run_folders_of_a_recipe_keep_their_names(name):
    recipe, wanted = RECIPES[name]
    runs = recipe()
    names = {one.folder_name for one in runs}
    names |= {one.model.after.folder_name for one in runs if getattr(one.model, "after", None)}
    assert hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16] == wanted


def test_trunc_and_truncr_of_the_integer_task_keep_their_window_of_10000():
    found = [one for run in mulmod.losses() for one in truncs(run.model.weight)]
    assert len(found) == 40
    assert {one.window for one in found} == {10_000}


def test_every_c_div_above_one_names_its_cap():
    integers = [*mulmod.tsallis(), *mulmod.tsallis_stable(), *mulmod.literal()]  # every c-Div of the integer task
    runs = [*integers, *demo.fine_tune(), *mathqa.five_models(), *mathqa_gain.experiments("m", "d")]
    losses = {run.model.loss for run in runs if "cdiv:alpha=1" in run.model.loss or "cdiv:alpha=2" in run.model.loss}
    assert {loss.partition("cap=")[2] for loss in losses} == {"10000.0", "100.0", "10.0"}
