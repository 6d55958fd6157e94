"""Describes the machine and the versions, for reports of faults: python -m cotan.utils.collect_env"""
import os
import platform
import sys


def get_pretty_env_info():
    from .. import __version__, get_num_threads
    lines = {"Cotan": __version__, "OS": platform.platform(), "Python": sys.version.replace("\n", " "),
             "Processor": platform.processor() or platform.machine(), "Cores": os.cpu_count(), "Threads": get_num_threads(),
             "CUDA available": False}
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def main():
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
