"""Jobs and CronJobs. ``jobs`` decides; ``job_policies``, ``job_indexes`` and ``job_tracking`` are its parts.

``original_jobs`` has the Jobs of the original MiniK8s, which run in a Slurm.
"""
