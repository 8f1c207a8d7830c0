"""Data sets read through `datasets`: folders here, by the same call that loads them from the hub."""

import json

import pytest

from widen.data.tasks import TASKS, read

ROWS = [{"prompt": f"prompt {i}", "story": f"story {i}", "other": i} for i in range(4)]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No test asks the network, and none leaves anything in a cache of the user's."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def test_a_folder_of_files_with_splits_is_loaded_by_split(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for split, rows in (("train", ROWS[:3]), ("test", ROWS[3:])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [e.completion for e in read("writing_prompts", str(folder)).examples] == ["story 0", "story 1", "story 2"]
    assert [e.completion for e in read("writing_prompts", str(folder), split="test").examples] == ["story 3"]
    with pytest.raises(ValueError, match=r"cannot load .*, split 'validation'"):
        read("writing_prompts", str(folder), split="validation")


def test_a_folder_that_datasets_saved_is_loaded_and_a_bad_row_is_named(tmp_path):
    import datasets

    made = datasets.Dataset.from_list([*ROWS, {"prompt": None, "story": "x", "other": 1}])
    made.save_to_disk(tmp_path / "plain")
    datasets.DatasetDict({"train": made}).save_to_disk(tmp_path / "split")
    for folder in ("plain", "split"):
        found = read("writing_prompts", str(tmp_path / folder), limit=5)
        assert [e.prompt for e in found.examples] == [f"prompt {i}\n\n" for i in range(4)]
        assert found.bad == [f"{tmp_path / folder}, train row 5: 'prompt' is null"]
    with pytest.raises(ValueError, match="it has no split 'test'; its splits: train"):
        read("writing_prompts", str(tmp_path / "split"), split="test")
    with pytest.raises(ValueError, match="none of the columns instruction, input, output"):
        read("alpaca", str(tmp_path / "plain"))


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.hub])
def test_without_a_source_the_tasks_own_data_set_is_asked_for(name, monkeypatch):
    """The hub is stood in for: what is asked of `datasets.load_dataset` is what would be asked of it."""
    import datasets

    asked = []

    def load(path, config=None, *, split):
        asked.append((path, config, split))
        row = {"prompt": "a", "text": "a", "description": "a", "instruction": "a", "test_list": ["assert a"]}
        row |= {"entry_point": "a", "test": "a"}
        return datasets.Dataset.from_list([row] if name != "codecontests" else [{"description": "a"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(read(name, split="validation").examples) == 1
    assert asked == [
        {
            "writing_prompts": ("euclaise/writingprompts", None, "validation"),
            "mathqa_python": ("dtruong46me/mathqa-python", None, "validation"),
            "codecontests": ("deepmind/code_contests", None, "validation"),
            "alpaca": ("tatsu-lab/alpaca", None, "validation"),
            "mbpp": ("google-research-datasets/mbpp", "full", "validation"),
            "humaneval": ("openai/openai_humaneval", None, "validation"),
        }[name]
    ]


def test_a_folder_that_is_no_data_set_is_refused_without_asking_datasets(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: pytest.fail("asked"))
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(ValueError, match=r"is not a data set: no file in it ends in \.jsonl"):
        read("jsonl", str(tmp_path))
    monkeypatch.setattr("widen.data.tasks.source_files.MANY", 5)
    for i in range(6):
        (tmp_path / f"{i}.jsonl").write_text("{}")
    with pytest.raises(ValueError, match="is not a data set: it holds more than 5 files"):
        read("jsonl", str(tmp_path))


def test_a_hub_name_that_cannot_be_reached_is_one_sentence():
    with pytest.raises(ValueError, match="cannot load 'no-such/data-set', split 'train', as a data set") as refused:
        read("alpaca", "no-such/data-set")
    assert "\n" not in str(refused.value)
