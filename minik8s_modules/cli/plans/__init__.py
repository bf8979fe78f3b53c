"""What applying would change, and how nodes differ from what is declared: asked of the API server, shown as text.

``planning_commands`` and ``drifting`` are the commands; ``applying`` is ``apply --plan``, which asks before it writes.
``planning`` turns an answer into lines, ``plan_markdown`` into a review.
"""
