"""cotan pack, and the program that is linked statically: where nothing is but program, model and packed kernels, it answers as ever."""
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.program import command
from support.serving import Server, make_model

BUILD = os.environ["COTAN_BUILD"]
# What the program is linked with, and docs/design/build-tools.md says why.
LIBRARIES = {"libc", "libm", "libjansson", "libz", "libpcre2-8", "libutf8proc"}
RUN = ["--prompt", "the quick brown", "--max-tokens", "24", "--temperature", "0", "--raw", "--verbose"]
SLOW = pytest.mark.skipif(os.environ.get("COTAN_TEST_ALL") != "1", reason="two hundred kernels are compiled")


def cotan(*words, program=None, env=None, **options):
    return subprocess.run([*(program or command("cotan")), *map(str, words)], capture_output=True, text=True, errors="replace", timeout=300,
                          env=os.environ | {"COTAN_CC": "none"} | (env or {}), **options)


def test_what_the_program_is_linked_with():
    found = subprocess.run(["ldd", *command("cotan")[-1:]], capture_output=True, text=True, check=True).stdout
    names = {re.sub(r"\.so.*", "", line.split()[0].rsplit("/", 1)[-1]) for line in found.splitlines() if ".so" in line}
    names -= {"linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64"}
    sanitized = {name for name in names if re.match(r"lib(asan|ubsan|gcc_s|stdc\+\+|dl|rt|pthread)", name)}
    assert names - sanitized == LIBRARIES
    assert not sanitized or "libasan" in names


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("pack") / "small")


def test_files_that_are_none_are_refused(model, tmp_path):
    file = tmp_path / "some.kernels"
    file.write_bytes(b"kernels")
    for how, env in ([["--kernels", file], {}], [["--kernels", f":{file}"], {}], [[], {"COTAN_KERNELS": str(file)}]):
        r = cotan("run", model, *RUN, *how, env=env)
        assert (r.returncode, r.stdout) == (1, ""), r
        where = "" if how else "lm_load: "
        assert r.stderr == f"cotan: {where}kernels: {file}: it is no file of packed kernels\n  hint: recreate it with cotan pack\n"
    r = cotan("serve", model, "--port", 0, "--kernels", tmp_path / "absent")
    assert r.returncode == 1 and re.fullmatch(r"cotan: .*absent.*No such file or directory\n", r.stderr), r


def test_refusals(model, tmp_path):
    out = tmp_path / "o.kernels"
    assert cotan("pack").stderr == "cotan: pack: it needs a MODEL: cotan pack MODEL [options]\n"
    r = cotan("pack", model, "--out", out, "--cores", 65)
    assert r.returncode == 2 and "--cores" in r.stderr
    r = cotan("pack", model, "--out", out, "--cores", 1)
    assert r.returncode == 1 and r.stderr == (
        "cotan: cpu: no working C compiler: COTAN_CC names no program: none\n"
        "  hint: install gcc or clang, set COTAN_CC to one, or to none to have kernels interpreted\n")
    assert not out.exists()


# ------------------------------------------------------------------------------------------- packed

@pytest.fixture(scope="module")
def packed(model):
    file = model.parent / "small.kernels"
    r = cotan("pack", model, "--out", file, "--cores", 2, env={"COTAN_CC": ""})
    assert r.returncode == 0, r.stderr
    assert re.fullmatch(rf"wrote {re.escape(str(file))}: \d+ kernels, \d\.\d MB\n", r.stdout)
    return file


@pytest.fixture(scope="module")
def written(model):
    """What the usual program writes, interpreted."""
    r = cotan("run", model, *RUN)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.fixture(scope="module")
def static():
    targets = subprocess.run(["cmake", "--build", BUILD, "--target", "help"], capture_output=True, text=True).stdout
    if "program_static" not in targets:
        pytest.skip("the libraries have no archives here, or sanitizers are linked in")
    r = subprocess.run(["cmake", "--build", BUILD, "--target", "program_static"], capture_output=True, text=True)
    assert r.returncode == 0 and "warning" not in r.stdout, r.stdout + r.stderr
    return f"{BUILD}/static/cotan"


@pytest.fixture(scope="module")
def container(model, packed, static):
    """A folder that holds nothing else, and how its program is called."""
    root = model.parent / "root"
    root.mkdir()
    shutil.copy(static, root / "cotan")
    shutil.copy(packed, root / "small.kernels")
    shutil.copytree(model, root / "small")
    call = ["chroot", root, "/cotan"]
    if os.geteuid():
        call = ["unshare", "-r", *call]
    if subprocess.run([*call, "version"], capture_output=True).returncode:
        pytest.skip("neither chroot nor unshare -r is allowed")
    return list(map(str, call))


def all_packed(said, level=r"AVX.*"):
    found = re.search(rf"; kernels for ({level}): (\d+) packed, (\d+) compiled, (\d+) launches interpreted\]", said)
    return found and int(found[2]) > 10 and (found[3], found[4]) == ("0", "0")


@SLOW
def test_run_needs_no_compiler(model, packed, written):
    for how, env in ([["--kernels", packed], {}], [[], {"COTAN_KERNELS": str(packed)}], [["--threads", 1, "--context", 100, "--kernels", packed], {}]):
        r = cotan("run", model, *RUN, *how, env=env)
        assert (r.returncode, r.stdout) == (0, written), r.stderr
        assert all_packed(r.stderr), r.stderr


@SLOW
def test_a_changed_file_is_not_used(model, packed, tmp_path):
    content = packed.read_bytes()
    said = set()
    for at in range(8, len(content), len(content) // 12):
        file = tmp_path / "changed"
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        r = cotan("run", model, *RUN, "--kernels", file)
        if r.returncode == 0:  # the byte stands in the kernels of other processors
            assert all_packed(r.stderr), r.stderr
            continue
        assert r.stdout == ""
        said.add(re.fullmatch(rf"cotan: kernels: {re.escape(str(file))}: (.*)\n  hint: recreate it with cotan pack\n", r.stderr)[1])
    assert "the file is damaged: what it holds is not what was written" in said
    assert all(re.match("the file (ends early|goes on behind its end|is damaged)", s) for s in said), said


@SLOW
def test_static_program_in_an_empty_container(container, static, written):
    described = subprocess.run(["ldd", static], capture_output=True, text=True)
    assert described.returncode and "not a dynamic executable" in described.stdout + described.stderr
    r = cotan("run", "small", *RUN, "--kernels", "small.kernels", program=container)
    assert (r.returncode, r.stdout) == (0, written), r.stderr
    assert all_packed(r.stderr), r.stderr
    r = cotan("run", "small", *RUN, program=container, env={"COTAN_CC": ""})  # without them it is slow, and says so
    assert (r.returncode, r.stdout) == (0, written), r.stderr
    assert r.stderr.startswith("cotan: cpu: a program that is linked statically loads packed kernels (cotan pack) and no compiled ones: "
                               "kernels are interpreted, several times slower\n"), r.stderr


@SLOW
def test_static_server_in_an_empty_container(container, model):
    ask = {"prompt": "the quick brown", "max_tokens": 12, "temperature": 0}
    usual = Server(model)
    expected = usual.say("/v1/completions", **ask)["choices"]
    assert usual.stop() == 0, usual.errors
    s = Server("small", "--kernels", "small.kernels", program=container)
    with ThreadPoolExecutor(4) as four:  # several at once are other kinds of steps
        said = list(four.map(lambda i: s.say("/v1/completions", **ask | ({"prompt": "a lazy dog " * i} if i else {}))["choices"], range(4)))
    assert said[0] == expected and s.say("/v1/completions", **ask)["choices"] == expected
    assert s.metric('cotan_kernels_total{from="pack"}') > 10
    assert [s.metric(name) for name in ('cotan_kernels_total{from="compiler"}', 'cotan_kernels_total{from="cache"}',
                                        "cotan_launches_interpreted_total")] == [0, 0, 0]
    assert s.stop() == 0, s.errors


@SLOW
def test_what_a_static_program_has_not(container):
    r = cotan("pull", "org/small", program=container)
    assert "this program is linked statically and has no libcurl: cotan pull of another one brings models" in r.stderr
    r = cotan("run", "small", *RUN, "--device", "opencl", program=container)
    assert "there is no OpenCL here: this program is linked statically and opens no shared libraries\n" in r.stderr
    r = cotan("serve", "small", "--host", "some.name", "--port", 0, "--kernels", "small.kernels", program=container)
    assert r.stderr == "cotan: serve: port 0 of some.name: a program that is linked statically takes addresses, no names\n"


@SLOW
@pytest.mark.parametrize("cpu, level", [("max", "AVX2"), ("qemu64", None)])
def test_other_processors(model, packed, static, written, cpu, level):
    r = cotan("run", model, *RUN, "--kernels", packed, program=["qemu-x86_64", "-cpu", cpu, static])
    if level:
        assert (r.returncode, r.stdout) == (0, written), r.stderr
        assert all_packed(r.stderr, level), r.stderr
    else:
        assert r.stderr.endswith(f"{packed}: it has kernels for processors with AVX2, AVX-512, and this one is none of them\n"
                                 "  hint: recreate it with cotan pack\n"), r.stderr
