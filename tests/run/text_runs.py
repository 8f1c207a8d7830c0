"""Small experiments on texts, run through their stages."""

from dataclasses import replace

from widen.run import runner
from widen.run.experiment import Experiment
from widen.run.finetune import Source
from widen.run.folder import folder_of
from widen.run.questions import prompts_for, questions_of
from widen.run.score_settings import ProgramScore
from widen.sample import Identity, Sample, SamplesWriter


def experiment(place, **changes):
    """Two prompts, two samples, two temperatures of the random model as it is."""
    plain = Experiment(
        name="plain",
        model=str(place / "model"),
        prompts=Source(task="mathqa_python", path=str(place / "mathqa_python.jsonl")),
        num_prompts=2,
        num_samples=2,
        decoding=("t=0.5", "t=1"),
        max_tokens=6,
        dtype="float32",
        score=ProgramScore(ks=(1, 2)),
    )
    return replace(plain, **changes)


def run(root, *experiments, stages=("train", "sample", "score"), **more):
    return runner.run("m:f", experiments, root, command="a test", stages=stages, **more)


def answer_with(root, one, texts):
    """Samples of known text, as if a model had drawn them: `texts` gives one for each prompt, index and decoding."""
    asked = questions_of(one, root)
    folder = folder_of(root, one)
    for setting in one.settings:
        path = folder.samples(setting.name)
        identity = Identity(engine="local", name="by hand", model={"weights": "none"})
        prompts = prompts_for(asked, None)
        with SamplesWriter(path, settings=setting, identity=identity, prompts=prompts) as writer:
            writer.append(
                Sample(prompt=a.id, index=i, text=texts(a.example, i, setting.decoding.temperature), finish="stop")
                for a in asked
                for i in range(one.num_samples)
            )
    return asked
