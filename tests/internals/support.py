"""What several files of tests of internals use."""

import os
import signal
import time

from tallbayes.run import chain as chains_module
from tallbayes.run.chain import Chain


def interrupting(monkeypatch, times, after=40, number=0):
    """Chains of which the first, or another, sends this process SIGINT, as Ctrl-C does, once it has some draws."""
    sent = []

    def chunk(chain, goal, original=Chain.chunk):
        made = original(chain, goal)
        while chain.number == number and chain.draws >= after and len(sent) < times:
            sent.append(chain.draws)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return made

    monkeypatch.setattr(Chain, "chunk", chunk)
    monkeypatch.setattr(chains_module, "CHUNK_SECONDS", 0.001)
