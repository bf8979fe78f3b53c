"""The server put together: the Flask application, gunicorn's worker, health, start and presence.

``app`` takes a request through identity, priority and audit; ``resources`` hands it to the verb that answers.
"""
