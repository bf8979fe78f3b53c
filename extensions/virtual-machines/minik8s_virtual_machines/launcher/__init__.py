"""What runs in container ``compute`` of a virtual machine's pod: of the standard library alone, for a small image.

guest.py        the VirtualMachineInstance as a value, and what is refused of it: pure
prepare.py      as root in an init container: tap device, rules, image files; then nothing has rights any more
main.py         process 1: forwards signals, reaps, and ends as the guest ended
life.py         locks the images, starts the machine, starts it again or ends
machines/       User-Mode Linux and QEMU behind one Protocol
commands.py     the Unix socket that ``vmctl`` speaks to
console.py      the serial console: several clients, the last bytes, the container's log
"""
