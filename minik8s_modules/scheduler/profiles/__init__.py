"""Which plugins there are and which decide: KubeSchedulerConfiguration v1 in, profiles out."""
