"""Finds centroids by K-means."""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats

#: clustering stops when all centroids together move less than this, in lengths of the range
MOVEMENT = 0.1


def local_centroids(points: Floats, count: int, seed: int, movement: float = MOVEMENT) -> Floats:
    """Returns centroids of scaled centres, found by scikit-learn in this process."""
    from sklearn.cluster import KMeans

    # It stops when the sum of squared movements is below tol × mean variance; by Cauchy-Schwarz the sum of
    # the movements is then below `movement`.
    variance = float(points.var(axis=0).mean())
    tolerance = movement**2 / count / variance if variance > 0 else 0.0
    model = KMeans(n_clusters=count, n_init=1, random_state=seed, tol=tolerance).fit(points)
    return np.ascontiguousarray(model.cluster_centers_, dtype=np.float64)
