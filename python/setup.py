"""Builds the library by the project's CMake, and with it the extension: pip install ./python."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """cotan/_core.abi3.so is the CMake target `python`, with the library in it."""

    def build_extension(self, ext):
        build = Path(self.build_temp).resolve() / "cmake"
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        generator = ["-G", "Ninja"] if self.find("ninja") else []
        subprocess.run(["cmake", "-S", HERE.parent, "-B", build, *generator, "-DCMAKE_BUILD_TYPE=Release",
                        f"-DCOTAN_PYTHON_INCLUDE={sysconfig.get_path('include')}",
                        f"-DCOTAN_PYTHON_OUTPUT={target}"], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "python", "--parallel", str(os.cpu_count() or 1)],
                       check=True)
        subprocess.run(["strip", "--strip-unneeded", target / "_core.abi3.so"], check=True)
        subprocess.run([sys.executable, HERE.parent / "scripts/make-stubs", target], check=True)

    @staticmethod
    def find(program):
        return any(os.access(Path(folder) / program, os.X_OK) for folder in os.environ.get("PATH", "").split(":"))


def version():
    line = next(line for line in (HERE.parent / "include/cotan/cotan.h").read_text().splitlines()
                if line.startswith("#define CT_VERSION "))
    return line.split('"')[1].replace("-dev", ".dev0")


setup(version=version(), ext_modules=[Extension("cotan._core", [], py_limited_api=True)],
      cmdclass={"build_ext": CMakeBuild}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
