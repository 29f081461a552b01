"""Response distributions, one per file: derivatives, suprema, normaliser, simulation, and the model they make."""
