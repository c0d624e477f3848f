"""Runs as experiment trackers keep them: TensorBoard, Weights & Biases, MLflow, trackio."""
