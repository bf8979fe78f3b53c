# Run in the new image's root. Services start when a test starts them, save SSH and Docker's socket. Boot time is udev's coldplug and what
# else no lab node needs, so that is masked.
systemctl disable -q apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    e2scrub_reap.service getty@tty1.service containerd.service docker.service nginx.service \
    nfs-server.service nfs-client.target nfs-blkmap.service rpcbind.service rpcbind.socket ipvsadm.service \
    etcd.service supervisor.service cron.service
systemctl mask -q getty-static.service console-getty.service systemd-pstore.service \
    systemd-udev-trigger.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-random-seed.service systemd-remount-fs.service systemd-user-sessions.service systemd-timesyncd.service \
    modprobe@fuse.service modprobe@drm.service modprobe@configfs.service modprobe@dm_mod.service \
    modprobe@loop.service modprobe@efi_pstore.service dev-hugepages.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-fs-fuse-connections.mount sys-kernel-config.mount
# logind starts when somebody asks for it, as `shutdown -r` does, and not with the system.
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /dev/null /etc/systemd/system/multi-user.target.wants/systemd-logind.service
update-alternatives --quiet --set iptables /usr/sbin/iptables-legacy
update-alternatives --quiet --set ip6tables /usr/sbin/ip6tables-legacy
mkdir -p /mnt/host /mnt/old /lib/modules
: >/etc/fstab
