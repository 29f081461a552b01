"""The posterior mode: search, steps, kinks of a Laplace prior, messages, and the Laplace fit."""
