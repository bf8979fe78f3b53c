"""``slurm``: a partition is a node, a job its Pod; nothing of ours is installed where jobs are submitted.

settings    what the provider's configuration says
entries     a Pod as an entry of ``minik8s_slurm_jobs``, or why it cannot be a job (pure)
images      what runs a Pod's image on a compute node (pure)
results     files that are copied to a ConfigMap before a Pod is told as ended
statuses    what Slurm says of a job as a Pod's status, and of a partition as a Node's (pure)
desk        which jobs there shall be, what the next pass is to say, and what its answer means (pure)
login       the module on the login machine, by Ansible, and files there
partition_node      what is known of the partition's node, and who is told
provider    the provider: a thread that passes, again and again
"""
