# Redpoll for Spack. In a repository of your own:
#   spack repo create ~/redpoll-spack && mkdir -p ~/redpoll-spack/packages/redpoll
#   cp packaging/spack/package.py ~/redpoll-spack/packages/redpoll/
#   spack repo add ~/redpoll-spack
#   spack install redpoll +python
# The sources are a checkout: `spack develop --path . redpoll@=main` in an environment.
# ruff: noqa: F403, F405  (what Spack defines for recipes)
from spack.package import *


class Redpoll(CMakePackage):
    """Compressed collectives over the network you have: the library libredpoll, the command
    redpoll, and the backend of PyTorch."""

    license("Apache-2.0")

    version("main", branch="main")
    version("0.3.0")

    variant("command", default=True, description="The command, with its engine and trainer")
    variant("onednn", default=True, description="The fast backend of the engine")
    variant("pictures", default=True, description="JPEG and PNG as data of the trainer")
    variant("openssl", default=True, description="Secrets of jobs, and TLS")
    variant("python", default=False, description="The Python package redpoll")
    variant("cuda", default=False, description="Codecs on NVIDIA GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("openssl@3:", when="+openssl")
    depends_on("cuda@12:", when="+cuda")

    with when("+command"):
        depends_on("libyaml")
        depends_on("cjson")
        depends_on("zlib-api")
        depends_on("pcre2")
        depends_on("utf8proc")
        depends_on("xz")
        depends_on("bzip2")
        depends_on("zstd")
        depends_on("hwloc@2:")
        depends_on("onednn", when="+onednn")
        depends_on("jpeg", when="+pictures")
        depends_on("libpng", when="+pictures")

    extends("python@3.9:", when="+python")
    depends_on("py-torch@2.9:", when="+python", type="run")
    depends_on("py-numpy", when="+python", type="run")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("REDPOLL_TESTS", self.run_tests),
            self.define("REDPOLL_PYTHON", "OFF"),
            self.define_from_variant("REDPOLL_COMMAND", "command"),
            self.define_from_variant("REDPOLL_ONEDNN", "onednn"),
            self.define_from_variant("REDPOLL_PICTURES", "pictures"),
            self.define_from_variant("REDPOLL_OPENSSL", "openssl"),
            self.define_from_variant("REDPOLL_CUDA", "cuda"),
        ]

    @run_after("install", when="+python")
    def install_python_package(self):
        """The modules and their metadata, and links to what CMake has installed."""
        script = join_path(self.stage.source_path, "packaging", "python_package.py")
        (library,) = find(self.prefix, "libredpoll.so")
        command = join_path(self.prefix.bin, "redpoll")
        python(script, self.stage.source_path, "/", python_platlib, library, command)
