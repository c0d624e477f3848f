"""Alerting rules of a fleet: signals, thresholds from simulated runs, rules for Prometheus, the dashboard."""
