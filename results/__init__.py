"""What was measured: the record's schema, the store of runs, and the metrics."""
