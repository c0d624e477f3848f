"""The one search: counts and changes of a job, looked at in short runs, decided in long ones, by one objective."""
