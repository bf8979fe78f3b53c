"""Jobs in a Slurm's queue, on a login machine: ``jobs`` decides, ``queue`` asks Slurm, ``folders`` keeps files.

``results`` reads the files that jobs leave behind as their results.

``jobs.SlurmJobs`` is a section like those of nodes (``core.section``): observe, plan, apply, status. Its state is kept
in the submitting user's home, as no right of root is needed.
"""
