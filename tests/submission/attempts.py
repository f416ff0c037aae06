"""What hostile host code tries: each attempt is an expression of Python.

`parent` is the judge's process id, `secret` a file outside the submission's folder, `package` a
file of gemmlab, `cached` one in gemmlab's cache folder.
"""

CODE = """\
#! gemmlab problem=gemm block=32 grid=1
import ctypes, fcntl, importlib.util, json, os, resource, socket
parent, secret, package, cached = {parent}, {secret!r}, {package!r}, {cached!r}
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def read(path):
    with open(path, "rb") as file:
        return file.read(1)
def write(path):
    open(path, "ab").close()
for name, text in json.loads({attempts!r}).items():
    try:
        eval(text)
        print(name, "done", flush=True)
    except OSError as error:
        print(name, "refused", flush=True)
"""

# Kind of defence -> attempt -> expression. Numbers are system calls of x86_64.
ATTEMPTS = {
    "files": {
        "read a file": "read(secret)",
        "read through /proc": "read('/proc/self/root' + secret)",
        "read through a symbolic link": "(os.symlink(secret, 'link'), read('link'))",
        "link a file": "os.link(secret, 'linked')",
        "list a folder": "os.listdir(os.path.dirname(secret))",
        "write a file": "write(secret)",
        "write beside": "write(secret + '.new')",
        "truncate a file": "os.truncate(secret, 0)",
        "change rights": "os.chmod(secret, 0o600)",
        "change times": "os.utime(secret)",
        "change attributes": "os.setxattr(secret, 'user.x', b'x')",
        "watch a folder": "call(254, call(294, 0) or 0, os.path.dirname(secret).encode(), 1)",
        "read the list of users": "read('/etc/passwd')",
        "list root's home": "os.listdir('/root')",
        "list its descriptors": "os.listdir('/proc/self/fd')",
        "list the folder of temporary files": "os.listdir('/tmp')",
        "open with openat2": "call(437, -100, secret.encode(), bytes(24), 24)",
        "move a file onto another": "(open('own', 'w').close(), os.rename('own', secret))",
        "a device": "os.mknod('device', 0o60600, os.makedev(8, 0))",
    },
    "network": {
        "TCP": "socket.socket()",
        "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "a Unix socket": "socket.socket(socket.AF_UNIX).connect('\\0abstract')",
        "an abstract socket": "socket.socketpair()[0].bind('\\0gemmlab')",
        "a datagram": "socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', secret)",
        "netlink": "socket.socket(socket.AF_NETLINK)",
        "io_uring": "call(425, 8, ctypes.create_string_buffer(200))",
    },
    "signals": {
        "signal the judge": "os.kill(parent, 0)",
        "signal its group": "os.killpg(os.getpgid(parent), 0)",
        "signal everybody": "os.kill(-1, 0)",
        "outlive the judge": "call(157, 1, 0, 0, 0, 0)",
        "set the clock": "call(227, 0, bytes(16))",
        "signal a thread": "call(200, parent, 0)",
        "signal through a file": "os.pidfd_open(parent)",
        "be told by the kernel": "fcntl.fcntl(0, fcntl.F_SETOWN, parent)",
        "limit the judge": "resource.prlimit(parent, resource.RLIMIT_CPU)",
        "slow the judge": "os.setpriority(os.PRIO_PROCESS, parent, 1)",
        "trace the judge": "call(101, 16, parent, 0, 0)",
        "list its descriptors, too": "os.listdir(f'/proc/{parent}/fd')",
        "leave through its folder": "os.listdir(f'/proc/{parent}/cwd')",
        "read its memory": "read(f'/proc/{parent}/mem')",
    },
    "fork": {
        "fork": "os.fork() or os._exit(0)",
        "start a program": "os.posix_spawn('/bin/true', ['true'], {})",
        "become a program": "os.execv('/nonexistent/true', ['true'])",
        "clone": "call(56, 17, 0, 0, 0, 0)",
        "a namespace": "call(272, 0x10000000)",
    },
    "memory": {
        "lift the limits": "call(160, resource.RLIMIT_AS, b'\\xff' * 16)",
        "leave memory behind": "write('/dev/shm/gemmlab')",
        "fill the root folder": "write('/gemmlab')",
        "fill the folder of devices": "write('/dev/gemmlab')",
        "memory without a limit": "os.memfd_create('x')",
        "shared memory": "call(29, 0, 4096, 0o1600)",
        "a message queue": "call(240, b'gemmlab', 66, 0o600, 0)",
    },
    "the cache": {"write to the cache": "write(cached)"},
    "the package": {
        "change the package": "write(package)",
        "change another package": "write(importlib.util.find_spec('numpy').origin)",
        "start with Python": "write(os.path.dirname(os.__file__) + '/sitecustomize.py')",
    },
    "the environment": {
        "read the judge's variables": "read(f'/proc/{parent}/environ')",
        "read its arguments": "read(f'/proc/{parent}/cmdline')",
        "have a key": "os.environ['GEMMLAB_TEST_TOKEN'] if os.environ.get('GEMMLAB_TEST_TOKEN')"
        " else write(secret)",
    },
}

# bubblewrap shows a process files and descriptors of its own instead.
OWN = {"list root's home", "list its descriptors", "list the folder of temporary files"}
