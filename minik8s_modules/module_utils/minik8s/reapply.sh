# What the node's timer starts each minute: a glance, and reapply.py only where that does not show that the node is
# attended. It does where the gateway's file has been touched since the last glance, less than 100 s ago by a clock that
# cannot be set; a Python to find that out costs ten times as much. The glance ("boot, touch, seconds since the boot,
# those of the glance before") counts as a look (install/attendance.py). It lies beside the run directory, in one that
# is root's: the shell writes through links.
#
#     reapply.sh RUN_DIR [OPTION OF reapply.py]...
# shellcheck shell=sh
run="$1"
shift
read -r boot < /proc/sys/kernel/random/boot_id
read -r now_s _ < /proc/uptime
now_s="${now_s%.*}"
known_boot='' known_touch='' known_s=''
[ ! -f "$run.glance" ] || read -r known_boot known_touch known_s _ < "$run.glance"
case "$known_s" in '' | *[!0-9]*) known_boot='' ;; esac
[ "$boot" = "$known_boot" ] || known_s=0
touch="$(stat -c %Y "$run/attended" 2> /dev/null)"
if [ -n "$touch" ] && [ "$boot $touch" != "$known_boot $known_touch" ]; then
    echo "$boot $touch $now_s $known_s" > "$run.glance" || known_boot=''
    [ "$boot" != "$known_boot" ] || [ "$((now_s - known_s))" -ge 100 ] || exit 0
fi
exec /usr/bin/python3 -m minik8s.reapply --run-dir="$run" "$@"
