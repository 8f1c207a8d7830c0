"""Precision and recall of a distribution, exactly, and what temperature does to them."""

import numpy as np

from widen.theory import ArtificialCase, pr_curve, tempered

p = np.array([0.5, 0.3, 0.2, 0.0])  # the reference: the last token is wrong
q = np.array([0.6, 0.2, 0.05, 0.15])  # a model: unsure of the third, and it makes mistakes

print("temperature  precision(inf)  recall(1)   area under the curve")
for t in (0.5, 1.0, 2.0, 5.0):
    curve = pr_curve(p, tempered(q, t))
    print(f"{t:11.1f}  {curve.precision(np.inf):14.3f}  {curve.recall(1.0):9.3f}  {curve.auc:21.3f}")

case = ArtificialCase(vocab=100, support=20, rho=0.5, a=0.725, epsilon=0.15)
print(f"artificial case: recall grows with temperature up to t = {case.t_0:.3f}, then falls")
