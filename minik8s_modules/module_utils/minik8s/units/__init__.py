"""The section ``units``: declared programs as units of systemd.

texts     the unit's file and that of its environment (pure)
systemd   what ``systemctl`` is asked and told
folders   what is kept of a unit
declared  the section: observe, plan, apply, status
"""
