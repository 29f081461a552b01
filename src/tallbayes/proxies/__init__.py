"""Cheap stand-ins for the log-likelihood of a row: Taylor, difference estimator, sufficient statistics, lower bounds."""
