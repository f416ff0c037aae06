"""A child process of `compilation`: it compiles the kernels described on stdin, into the cache."""

import pickle
import sys

from gemmlab.core import processes
from gemmlab.linalg.arch import ARCHITECTURES
from gemmlab.linalg.runtime.kernels import artifact

if __name__ == "__main__":
    parent, described = pickle.load(sys.stdin.buffer)
    processes.die_with_parent(parent)
    processes.collect_seldom()
    for *code, capability in described:
        artifact((*code, ARCHITECTURES[capability]), line_info=False)
