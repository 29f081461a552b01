"""How rows are chosen and decisions made: what several samplers share."""
