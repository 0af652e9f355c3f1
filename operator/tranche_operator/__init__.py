"""Creates, evicts and resumes the pods of TrainingJobs as the planner decided; knows the objects, not the scheduler."""
