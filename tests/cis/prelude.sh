# What the commands of controls.yml are made of. Each function ends with 0 where it holds, and prints what was found.
# The runner sets NS (a namespace of its own that asks for Pod Security `restricted`), HERE, PYTHON (with PyYAML), CODE (of
# minik8s_modules), STREAMS and PLANS (ports).
set -o pipefail
CONFIG=/etc/minik8s
PORT=6443
export KUBECONFIG=$CONFIG/admin.kubeconfig
k() { /opt/minik8s/bin/kubectl --cache-dir=/run/minik8s/kubectl "$@"; }

# value FILE KEY [DEFAULT]: what a daemon's configuration says at a dotted key
value() {
    "$PYTHON" - "$CONFIG/$1" "$2" "${3-}" <<'END'
import functools, sys, yaml
document = yaml.safe_load(open(sys.argv[1]))
found = functools.reduce(lambda value, key: (value or {}).get(key), sys.argv[2].split("."), document)
found = sys.argv[3] if found is None and sys.argv[3] else found
print(found) if found is not None else sys.exit(f"{sys.argv[1]} has no {sys.argv[2]}")
END
}
absent() { ! value "$1" "$2" 2>/dev/null && echo "$1 has no $2"; }
file() { test -s "$1" && echo "$1"; }
DEFINITIONS=$(ls /etc/supervisor/conf.d/minik8s-*.conf /etc/systemd/system/minik8s-*.service 2>/dev/null)

# modes MOST FILE...: no file has a permission that MOST (octal) lacks
modes() {
    local most=$1 path found; shift
    for path in "$@"; do
        found=$(stat -Lc %a "$path") || return 1
        (((8#$found & ~8#$most) == 0)) || { echo "$path has $found"; return 1; }
    done
    echo "$# of at most $most"
}
# owned USER FILE...: they are the user's
owned() {
    local user=$1 path; shift
    for path in "$@"; do
        [ "$(stat -Lc %U "$path")" = "$user" ] || { echo "$path is $(stat -Lc %U "$path")'s"; return 1; }
    done
    echo "$# of $user"
}
# refused WORDS COMMAND...: the command fails and says WORDS
refused() {
    local words=$1 said; shift
    if said=$("$@" 2>&1); then echo "was not refused"; return 1; fi
    grep --fixed-strings --quiet -- "$words" <<<"$said" && echo "$words" || { echo "$said"; return 1; }
}
# can yes|no WHAT...: what `kubectl auth can-i` answers
can() { local wanted=$1; shift; [ "$(k auth can-i "$@" 2>/dev/null | cut -d ' ' -f 1)" = "$wanted" ] && echo "$wanted: $*"; }
answer() { curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}' --cacert $CONFIG/pki/ca.crt "$@"; }
# status CODE PATH: what the API server answers to nobody
status() { local found; found=$(answer "https://127.0.0.1:$PORT$2"); echo "$2: $found"; [ "$found" = "$1" ]; }
# metrics PORT CODE PATH: what controllers or scheduler answer to nobody
metrics() { local found; found=$(answer "https://127.0.0.1:$1$3"); echo "$3: $found"; [ "$found" = "$2" ]; }
as_token() { local found; found=$(answer --header "Authorization: Bearer $2" "https://127.0.0.1:$PORT$3"); echo "$found"; [ "$found" = "$1" ]; }
needs_certificate() { local found; found=$(answer "https://127.0.0.1:$1/"); echo "$1: $found"; [ "$found" = 000 ]; }
# forbidden_to PORT KUBECONFIG: the certificate of another daemon opens nothing
forbidden_to() {
    local pem found; pem=$(mktemp)
    "$PYTHON" -c '
import base64, sys, yaml
user = yaml.safe_load(open(sys.argv[1]))["users"][0]["user"]
print("".join(base64.b64decode(user[f"client-{name}-data"]).decode() for name in ("certificate", "key")))
' "$CONFIG/$2" >"$pem"
    found=$(answer --cert "$pem" $([ "$1" = "$PLANS" ] && echo --data {}) "https://127.0.0.1:$1/$([ "$1" = "$PLANS" ] && echo plan || echo metrics)")
    rm -f "$pem"
    echo "$1: $found"; [ "$found" = 403 ]
}
subject_of() {
    "$PYTHON" -c '
import base64, sys, yaml
user = yaml.safe_load(open(sys.argv[1]))["users"][0]["user"]
sys.stdout.buffer.write(base64.b64decode(user["client-certificate-data"]))' "$1" | openssl x509 -noout -subject
}
# strong PORT: no CBC, nothing before TLS 1.2
strong() {
    local options
    for options in "-tls1_1 -cipher ALL:@SECLEVEL=0" "-tls1_2 -cipher ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384:AES256-SHA"; do
        # shellcheck disable=SC2086 # options are words
        ! openssl s_client -connect 127.0.0.1:"$1" $options </dev/null 2>&1 | grep -E '^ *Cipher *(is|:) *(ECDHE|AES|DHE)' || return 1
    done
    { openssl s_client -connect 127.0.0.1:"$1" -tls1_2 </dev/null 2>&1 || true; } | # ends by itself where it has no certificate
        grep -oE 'ECDHE-[A-Z0-9-]*(GCM|CHACHA20)[A-Z0-9-]*' | head -n 1
}
only_loopback() { ss --no-header --listening --tcp --numeric "sport = :$1" | awk '{print $4}' | grep . | { ! grep -v '^127\.'; } && echo loopback; }
no_port() { [ -z "$(ss --no-header --listening --tcp --numeric "sport = :$1")" ] && echo "nothing listens on $1"; }
logged() { local tries; for tries in {1..50}; do grep --fixed-strings --quiet -- "$1" "$(value apiserver.yml audit.path)" && echo "$1" && return; sleep 0.2; done; return 1; }
claims() { "$PYTHON" -c 'import base64, json, sys; part = sys.stdin.read().split(".")[1]; claims = json.loads(base64.urlsafe_b64decode(part + "==")); print(eval(sys.argv[1]))' "$1"; }
# in_pod KIND [OPTION...]: ask for a pod in the restricted namespace, without making it
in_pod() { local kind=$1; shift; "$PYTHON" "$HERE/pods.py" "$kind" | k create --dry-run=server --namespace="$NS" -f - "$@"; }
roles_with() { "$PYTHON" "$HERE/roles.py" resource "$1" "$2"; }
roles_that() { "$PYTHON" "$HERE/roles.py" verb "$1"; }
bound_default() { "$PYTHON" "$HERE/roles.py" default-accounts | only; }
# only NAME...: standard input has no line but these; prints it
only() {
    local found; found=$(sort -u)
    found=$(grep --line-regexp --fixed-strings --invert-match "$(printf '%s\n' "${@:-}")" <<<"$found" | grep . || true)
    [ -z "$found" ] && echo "only ${*:-nobody}" || { echo "also: $(tr '\n' ' ' <<<"$found")"; return 1; }
}
# confined: each daemon that never becomes root has no capability and gains none
confined() {
    local name pid
    for name in etcd apiserver scheduler controllers certificates gateway streams; do
        grep -q "minik8s-$name\." <<<"$DEFINITIONS" || continue
        pid=$(pgrep --oldest --full "/opt/minik8s/venv/bin/minik8s-$name |etcd --config-file=$CONFIG/$name.yml")
        grep -q 'NoNewPrivs:.1' "/proc/$pid/status" && grep -q 'CapBnd:.0000000000000000' "/proc/$pid/status" ||
            { echo "minik8s-$name ($pid) is not confined"; return 1; }
    done
    echo "no new privileges, no capabilities"
}
