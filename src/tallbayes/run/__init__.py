"""Chains, warm-up, checkpoints: turns a sampler into draws."""
