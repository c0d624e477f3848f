"""A page to type into: the job as a form, the answer and its curve while one moves a slider."""
