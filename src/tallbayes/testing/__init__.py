"""Tools to test samplers and models: chains run by hand, exact small posteriors, invariance, enumeration, laws compared.

Public, for contributors' own samplers as well; see docs/write-a-sampler.md and docs/testing.md.
"""

from tallbayes.testing.chains import ChainRun, FrozenKernel, frozen_kernel, run_chunks
from tallbayes.testing.comparison import all_draws, effective_sizes, largest_disagreement
from tallbayes.testing.decisions import Decisions, replay_decisions
from tallbayes.testing.enumeration import ScriptedRandom, invariance_error, irreducible, poisson_outcomes, transition_matrix
from tallbayes.testing.fits import fit_from_draws
from tallbayes.testing.importance import ImportanceEstimate, importance_moments
from tallbayes.testing.invariance import THRESHOLD, invariance_scores, moment_scores
from tallbayes.testing.likelihood import RowCount, counting_rows, log_likelihood, log_likelihood_gradient, row_log_likelihoods
from tallbayes.testing.model_parts import BATCH_ROWS, design_matrix, mode_at
from tallbayes.testing.quadrature import ExactPosterior, exact_posterior

__all__ = [
    "BATCH_ROWS",
    "THRESHOLD",
    "ChainRun",
    "Decisions",
    "ExactPosterior",
    "FrozenKernel",
    "ImportanceEstimate",
    "RowCount",
    "ScriptedRandom",
    "all_draws",
    "counting_rows",
    "design_matrix",
    "effective_sizes",
    "exact_posterior",
    "fit_from_draws",
    "frozen_kernel",
    "importance_moments",
    "invariance_error",
    "invariance_scores",
    "irreducible",
    "largest_disagreement",
    "log_likelihood",
    "log_likelihood_gradient",
    "mode_at",
    "moment_scores",
    "poisson_outcomes",
    "replay_decisions",
    "row_log_likelihoods",
    "run_chunks",
    "transition_matrix",
]
