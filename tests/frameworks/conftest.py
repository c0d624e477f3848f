"""The configuration files under data are read by the tests, never run or collected."""

collect_ignore_glob = ["data/*"]
