"""Warnings about a score: each note names a way in which these numbers are known to mislead."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .knn_result import KnnScores

SHORT = 20  # words; features of shorter texts carry little information
FEW = 1000  # texts; with fewer, k-NN scores vary visibly between samples


def notes_on(
    reference: Sequence[str],
    generated: Sequence[str],
    *,
    knn: KnnScores | None = None,
    truncated: int = 0,
    empty: int = 0,
    few_for_bleu: bool = False,
    features: bool = True,
) -> tuple[str, ...]:
    """The notes that apply, most serious first.

    Args:
      truncated: number of texts cut by the embedder.
      empty: number of generated texts without content, if no reference text is empty.
      few_for_bleu: self-BLEU was asked for, but fewer than two texts have words.
      features: whether features were compared. Only these metrics have intervals.

    Examples:
      >>> notes_on(["a"], ["a", "a"])[0]
      'The sets differ in size (1 reference, 2 generated texts): most of these scores depend on it.'
    """
    n, m, known = len(reference), len(generated), set(reference)
    repeated, copied = m - len(set(generated)), sum(text in known for text in generated)
    zero = 0
    if knn is not None and knn.settings.boundary == "open":
        zero = knn.diagnostics.zero_radii_reference + knn.diagnostics.zero_radii_generated
    count_as = (
        "is empty: it counts as imprecise and reaches" if empty == 1 else "are empty: they count as imprecise and reach"
    )
    intervals = "; look at the intervals" if features else ""
    notes = {
        f"The sets differ in size ({n:,} reference, {m:,} generated texts): most of these scores depend on it.": n != m,
        f"Fewer than {FEW:,} texts in a set: scores vary visibly between samples{intervals}.": min(n, m) < FEW,
        "self-BLEU is left out: it compares the texts of one set and needs two that hold a word.": few_for_bleu,
        f"{repeated:,} of {m:,} generated texts repeat an earlier one word for word.": repeated,
        f"{copied:,} generated texts are copies of reference texts: precision and coverage count them as good.": copied,
        f"{zero:,} balls have radius 0 and are empty, as the boundary is open: use a closed boundary.": zero,
        f"{empty:,} of {m:,} generated texts {count_as} no reference text.": empty,
        f"{truncated:,} texts were cut at the embedder's limit: the rest of them was not scored.": truncated,
    }
    for name, texts in (("reference", reference), ("generated", generated)):
        words = median(len(text.split()) for text in texts)
        short = (
            f"Half of the {name} texts have at most {words:g} words: features of short texts carry little information."
        )
        notes[short] = features and words < SHORT
    return tuple(note for note, applies in notes.items() if applies)
