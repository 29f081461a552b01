"""Written by docs/generate.py from the files of this folder."""

from collections.abc import Callable
from typing import Any

from tallbayes.contract import KINDS as KINDS
from tallbayes.contract import Diagnosis as Diagnosis
from tallbayes.contract import Guarantee as Guarantee
from tallbayes.contract import Outcome as Outcome
from tallbayes.contract import Sampler as Sampler
from tallbayes.contract import Setup as Setup
from tallbayes.contract import advance as advance
from tallbayes.contract import positions as positions
from tallbayes.samplers.austerity import Austerity as Austerity
from tallbayes.samplers.block_pseudo_marginal import BlockPseudoMarginal as BlockPseudoMarginal
from tallbayes.samplers.confidence import Confidence as Confidence
from tallbayes.samplers.delayed_acceptance import DelayedAcceptance as DelayedAcceptance
from tallbayes.samplers.exact_minibatch import ExactMinibatch as ExactMinibatch
from tallbayes.samplers.firefly import Firefly as Firefly
from tallbayes.samplers.full_data import FullData as FullData
from tallbayes.samplers.hmc_ecs import HMCECS as HMCECS
from tallbayes.samplers.informed import Informed as Informed
from tallbayes.samplers.mh_sublhd import MHSubLhd as MHSubLhd
from tallbayes.samplers.minibatch_barker import MinibatchBarker as MinibatchBarker
from tallbayes.samplers.minibatch_gibbs import MinibatchGibbs as MinibatchGibbs
from tallbayes.samplers.mode_jumping import ModeJumping as ModeJumping
from tallbayes.samplers.naive_hmc import NaiveHMC as NaiveHMC
from tallbayes.samplers.naive_subsampling import NaiveSubsampling as NaiveSubsampling
from tallbayes.samplers.noise_exchange import NoiseExchange as NoiseExchange
from tallbayes.samplers.penalty import PenaltyMH as PenaltyMH
from tallbayes.samplers.pseudo_marginal_firefly import PseudoMarginalFirefly as PseudoMarginalFirefly
from tallbayes.samplers.rhee_glynn import RheeGlynn as RheeGlynn
from tallbayes.samplers.sghmc import SGHMC as SGHMC
from tallbayes.samplers.sgld import SGLD as SGLD
from tallbayes.samplers.sgnht import SGNHT as SGNHT
from tallbayes.samplers.surrogate_transition import SurrogateTransition as SurrogateTransition
from tallbayes.samplers.zigzag import ZigZag as ZigZag

CLASSES: dict[str, type[Any]]
SAMPLERS: dict[str, Callable[[], Sampler]]

def resolve(sampler: str | Sampler) -> Sampler: ...
def from_dict(options: dict[str, Any]) -> Sampler: ...
