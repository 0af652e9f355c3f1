"""The web page and the read-only API of jobs and sites, for people who may read TrainingJobs."""
