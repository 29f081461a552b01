"""Certificates: proven bounds on what a proxy leaves out of the log-likelihood of a row."""
