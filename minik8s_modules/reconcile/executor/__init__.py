"""Work items on their way to nodes and back: ``runner`` starts ansible-runner once, ``live_run`` feeds the run.

``results`` checks what comes back, ``ledger`` joins it with what was asked; ``standing_runner`` keeps the runner over
elections. ``fake_runner`` passes the same suite.
"""
