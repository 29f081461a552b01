"""Tools to test samplers: exact small posteriors, invariance from exact draws, enumeration, importance sampling.

Public, for contributors' own samplers as well; see docs/write-a-sampler.md.
"""

from tallbayes.testing.enumeration import invariance_error, irreducible, poisson_outcomes, transition_matrix
from tallbayes.testing.importance import ImportanceEstimate, importance_moments
from tallbayes.testing.invariance import THRESHOLD, invariance_scores, moment_scores
from tallbayes.testing.quadrature import ExactPosterior, exact_posterior

__all__ = [
    "THRESHOLD",
    "ExactPosterior",
    "ImportanceEstimate",
    "exact_posterior",
    "importance_moments",
    "invariance_error",
    "invariance_scores",
    "irreducible",
    "moment_scores",
    "poisson_outcomes",
    "transition_matrix",
]
