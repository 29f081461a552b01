"""Cheap stand-ins for the log-likelihood of a row, with proven bounds on what they leave out."""
