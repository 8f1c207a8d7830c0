"""Arrays or texts in, numbers out, each with its interval and its settings.

    knn          precision, recall, density, coverage; exact, from ten points to a million
    text_scores  all metrics from two lists of texts        embed         texts -> features
    mauve, prd   curves over clusters                       support_size  how few tokens hold the mass
    ngrams, vendi   diversity of one set                    passes        pass@k as precision and recall
    separation   how well a model separates right from wrong next tokens

A metric takes arrays, never a model's name; `reference` comes before `generated`; options are keyword-only.
"""

from .clusters import Clustering, kmeans
from .embed import EmbeddedTexts, Embedder, EmbedSettings, embed_texts
from .features import PCA, fit_pca, unit_rows
from .interval import Interval, mean_interval, share_interval
from .knn import (
    Ceiling,
    FourScores,
    KnnDiagnostics,
    KnnIntervals,
    KnnReference,
    KnnScores,
    KnnSettings,
    knn_scores,
    knn_scores_by_k,
)
from .mauve import Mauve, mauve_of_histograms, mauve_score
from .ngrams import Distinct, SelfBleu, distinct_n, self_bleu
from .passes import PassScores, pass_at_k, pass_scores
from .prd import Prd, prd_scores
from .separation import RatioHistogram, Separation, ratio_histogram, separation_scores
from .support_size import Sparsity, sparsity, sparsity_of_model, support_sizes
from .text_scores import PAPER, ScoreSettings, TextScores, score_texts
from .vendi import Vendi, vendi_score

__all__ = [
    "PAPER",
    "PCA",
    "Ceiling",
    "Clustering",
    "Distinct",
    "EmbedSettings",
    "EmbeddedTexts",
    "Embedder",
    "FourScores",
    "Interval",
    "KnnDiagnostics",
    "KnnIntervals",
    "KnnReference",
    "KnnScores",
    "KnnSettings",
    "Mauve",
    "PassScores",
    "Prd",
    "RatioHistogram",
    "ScoreSettings",
    "SelfBleu",
    "Separation",
    "Sparsity",
    "TextScores",
    "Vendi",
    "distinct_n",
    "embed_texts",
    "fit_pca",
    "kmeans",
    "knn_scores",
    "knn_scores_by_k",
    "mauve_of_histograms",
    "mauve_score",
    "mean_interval",
    "pass_at_k",
    "pass_scores",
    "prd_scores",
    "ratio_histogram",
    "score_texts",
    "self_bleu",
    "separation_scores",
    "share_interval",
    "sparsity",
    "sparsity_of_model",
    "support_sizes",
    "unit_rows",
    "vendi_score",
]
