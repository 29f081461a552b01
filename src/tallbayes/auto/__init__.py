"""`sampler="auto"`: predict what each method would cost on this posterior, and take the cheapest that meets the guarantee.

A first prediction is what a method costs at best. The one that looks cheapest is tried in a pilot, a short chain of the method
itself, and the prediction made anew from what the chain did; so on until the cheapest has been tried. Tails are looked at before:
where they are much heavier than those of the Laplace fit, exact minibatch proposes from Student's t and decides in one stage. Methods
that refuse the model are skipped, with their reason. Costs are compared in nanoseconds, because a random row costs more than a
sequential one, and reported in evaluations per effective draw. An approximate method is considered only if the wanted guarantee
allows it, and taken only if it is several times faster than every exact one; the reason then says so.

Warm-up is the last judge: where it contradicts the prediction by more than `CONTRADICTION`, `reconsider` chooses again.
"""

from __future__ import annotations

from tallbayes.auto.choice import choose
from tallbayes.auto.judgement import JUDGED, reconsider, warm_up
from tallbayes.auto.predictions import Prediction
from tallbayes.auto.weighing import Choice, Weighing

__all__ = ["JUDGED", "Choice", "Prediction", "Weighing", "choose", "reconsider", "warm_up"]
