"""The Kubernetes API over HTTPS: Flask on gunicorn, admission, authentication, watch hub."""
