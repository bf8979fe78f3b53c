"""The machines that run a guest, behind one Protocol (``machine.py``)."""
