"""Examples as tokens: the mask, both ends, and what becomes of a text that is too long."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.data.tasks import IGNORED, Example, encode

BOS, EOS = 0, 1


class Letters:
    """A tokenizer with a token a letter, and one token for "ab", which a joined text would fuse."""

    def __init__(self, first=True, bos=BOS, eos=EOS, last=False):
        self.first, self.last, self.bos_token_id, self.eos_token_id = first, last, bos, eos

    def __call__(self, text, add_special_tokens=True):
        ids = [2 if piece == "ab" else ord(piece) for piece in self._pieces(text)]
        ids = [BOS] * (self.first and add_special_tokens) + ids + [EOS] * (self.last and add_special_tokens)
        return type("Encoded", (), {"input_ids": ids})

    def _pieces(self, text):
        at = 0
        while at < len(text):
            piece = "ab" if text[at : at + 2] == "ab" else text[at]
            yield piece
            at += len(piece)


def made(prompt, completion, **options):
    tokenizer = options.pop("tokenizer", Letters())
    return encode(Example(prompt, completion, {}), tokenizer, **({"max_length": 100} | options))


def test_the_prompt_is_masked_and_the_completion_with_its_end_is_learnt():
    one = made("xy", "zw")
    assert one.input_ids == [BOS, ord("x"), ord("y"), ord("z"), ord("w"), EOS]
    assert one.labels == [IGNORED] * 3 + [ord("z"), ord("w"), EOS]
    assert (one.prompt_cut, one.completion_cut) == (0, 0)
    assert made("xy", f"zw{chr(EOS)}") == one  # data written for another trainer, whose texts spell the end token


def test_the_prompts_tokens_are_those_that_sampling_feeds_where_a_joined_text_would_fuse():
    one = made("xa", "b")
    assert one.input_ids[: one.labels.index(ord("b"))] == Letters()("xa").input_ids
    assert one.input_ids != [*Letters()("xab").input_ids, EOS]


def test_an_empty_prompt_is_the_first_token_as_sampling_has_it():
    assert made("", "z").input_ids == [BOS, ord("z"), EOS]
    bare = Letters(first=False)
    assert made("", "z", tokenizer=bare).input_ids == [BOS, ord("z"), EOS]
    none = Letters(first=False, bos=None)
    assert made("", "z", tokenizer=none).input_ids == [EOS, ord("z"), EOS]
    assert made("", "z", tokenizer=none, first_token=9).input_ids == [9, ord("z"), EOS]
    assert made("x", "z", tokenizer=none, first_token=9).input_ids == [ord("x"), ord("z"), EOS]


def test_a_long_completion_loses_its_end_and_its_end_token():
    one = made("x", "cdefgh", max_length=6)
    assert one.input_ids == [BOS, ord("x"), *map(ord, "cdef")]
    assert one.completion_cut == 3


def test_a_long_prompt_keeps_its_first_token_and_what_stands_next_to_the_completion():
    one = made("pqrstuvw", "z", max_length=6)
    assert one.input_ids == [BOS, *map(ord, "uvw"), ord("z"), EOS]
    assert (one.prompt_cut, one.completion_cut) == (5, 0)


@given(prompt=st.text("axyz", max_size=40), completion=st.text("bcd", max_size=40), room=st.integers(2, 50))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_at_any_length_the_mask_is_exact_and_something_is_left_to_learn(prompt, completion, room):
    one, whole = made(prompt, completion, max_length=room), made(prompt, completion, max_length=1000)
    assert len(one.input_ids) == len(one.labels) <= room
    targets = [label for label in one.labels if label != IGNORED]
    assert targets
    start = len(one.labels) - len(targets)
    assert one.labels == [IGNORED] * start + one.input_ids[start:]
    assert start >= 1
    assert targets == [label for label in whole.labels if label != IGNORED][: len(targets)]
    assert len(targets) >= min(len(completion) + 1, room // 2)
    assert len(whole.input_ids) - len(one.input_ids) == one.prompt_cut + one.completion_cut
    if len(whole.input_ids) <= room:
        assert one == whole


@pytest.mark.parametrize("prompt", ["x", ""])
def test_a_tokenizer_that_ends_every_text_is_refused_and_an_end_in_the_prompt_itself_is_not(prompt):
    with pytest.raises(ValueError, match=r"adds its end token to every text.*add_eos_token to false"):
        made(prompt, "y", tokenizer=Letters(last=True))
    assert made(f"x{chr(EOS)}", "y").input_ids == [BOS, ord("x"), EOS, ord("y"), EOS]


def test_a_tokenizer_without_an_end_and_a_length_without_room_are_refused():
    with pytest.raises(ValueError, match="no end token"):
        made("x", "y", tokenizer=Letters(eos=None))
    with pytest.raises(ValueError, match="max_length=1"):
        made("x", "y", max_length=1)


@pytest.mark.parametrize("prompt", ["# what is 1 ?\n", "2 + 2 =", ""])
def test_with_a_real_tokenizer_the_prompt_is_what_the_local_engine_feeds(prompt):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    from widen.sample import Decoding, LocalEngine, Prompt, Settings

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(["# what is 1 ?\nanswer = 1"], trainer)
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    engine = LocalEngine.__new__(LocalEngine)
    engine.tokenizer = tokenizer
    fed = list(engine._ids(Prompt(text=prompt), Settings(decoding=Decoding())))
    one = encode(Example(prompt, "answer = 1", {}), tokenizer, max_length=100)
    assert one.input_ids[: one.labels.count(IGNORED)] == fed
    assert one.input_ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(one.input_ids, skip_special_tokens=True) == prompt + "answer = 1"
