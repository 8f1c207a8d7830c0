"""What to know before believing a score, said in plain sentences: each is a way in which these numbers are known to mislead."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .knn_result import KnnScores

SHORT = 20  # words; below about this much a text's features say little of it
FEW = 1000  # texts; below this k-NN scores move visibly with the sample


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
    """Sentences for whatever applies, most serious first.

    Args:
      reference: texts scored.
      generated: texts scored.
      knn: its result, for duplicates and zero radii.
      truncated: texts cut by the embedder.
      empty: texts without a token.
      few_for_bleu: self-BLEU was asked for and there were not two texts with words to compare.
      features: whether features of the texts were compared, which is what has intervals.

    Examples:
      >>> notes_on(["a"], ["a", "a"])[0]
      'The sets differ in size (1 reference, 2 generated texts): most of these scores depend on it.'
    """
    found = []
    if len(reference) != len(generated):
        found.append(
            f"The sets differ in size ({len(reference):,} reference, {len(generated):,} generated texts):"
            " most of these scores depend on it."
        )
    if min(len(reference), len(generated)) < FEW:
        found.append(
            f"Fewer than {FEW:,} texts in a set: scores move visibly from sample to sample"
            + ("; look at the intervals." if features else ".")
        )
    if few_for_bleu:
        found.append("self-BLEU is left out: it compares texts of one set, and needs two that hold a word.")
    repeated = len(generated) - len(set(generated))
    if repeated:
        found.append(f"{repeated:,} of {len(generated):,} generated texts repeat an earlier one word for word.")
    copied = sum(text in set_of for set_of in [set(reference)] for text in generated)
    if copied:
        found.append(
            f"{copied:,} generated texts are copies of reference texts: precision and coverage count them as good."
        )
    if knn is not None and knn.settings.boundary == "open":
        zero = knn.diagnostics.zero_radii_reference + knn.diagnostics.zero_radii_generated
        if zero:
            found.append(
                f"{zero:,} balls have radius 0 and, the boundary being open, hold nothing: use a closed boundary."
            )
    if empty:
        found.append(f"{empty:,} texts are empty; their features are those of an end-of-text mark.")
    if truncated:
        found.append(f"{truncated:,} texts were cut at the embedder's limit: what follows was not scored.")
    for name, texts in (("reference", reference), ("generated", generated)):
        words = median(len(text.split()) for text in texts)
        if features and words < SHORT:
            found.append(
                f"Half of the {name} texts have at most {words:g} words: features of short texts say little of them."
            )
    return tuple(found)
