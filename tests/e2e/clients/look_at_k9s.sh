#!/usr/bin/env bash
# Build k9s (five minutes the first time) and look at the installed cluster with it; with --test, run its test instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
k9s=$(.venv/bin/python -m tests.support.gotools k9s)
if [ "${1:-}" = --test ]; then
    exec .venv/bin/pytest tests/e2e/clients/test_k9s.py
fi
exec "$k9s" --kubeconfig /etc/minik8s/admin.kubeconfig "$@"
