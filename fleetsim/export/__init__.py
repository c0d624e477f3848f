"""A run in the forms of other tools: OpenMetrics, Parquet, Perfetto."""
