"""Jobs and CronJobs. ``jobs`` decides; ``job_policies``, ``job_indexes`` and ``job_tracking`` are its parts."""
