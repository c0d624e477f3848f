"""Standing signals: alerting rules, dashboard and exporter of a plan."""
