"""What pilots foresee and finished runs show: subsample sizes, normality, tails, quality of likelihood estimates."""
