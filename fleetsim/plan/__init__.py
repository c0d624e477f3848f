"""From a scenario to a plan: rate matching, the smallest fleet, its headroom, its queue cap, its cost."""
