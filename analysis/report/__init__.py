"""The report: every question answered by one sentence and one figure, from the data of a run."""
