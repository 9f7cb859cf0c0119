#!/usr/bin/python3
"""Operators of one's own: what docs/operators.md says, command by command, and what is refused."""

import glob
import json
import os
import re
import subprocess
import tempfile

from xopd import BACKEND, BUILD, LIMIT_S, Daemon, run

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(HERE, "../../docs/operators.md")
XOPCTL = os.path.join(BUILD, "xopctl")
KIND, ENDING = ("cuda", "cu") if BACKEND == "cuda" else ("cpu", "c")
CC = os.environ.get("CC", "cc")
HEADERS = os.path.join(BUILD, "include")


class Place:
    """A directory to work in, and what is called in it."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="xopd-op-")
        self.path = self.temporary.name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def op(self, *arguments, **environment):
        """Exit status, standard output and error of xopctl op."""
        done = subprocess.run([XOPCTL, "op", *arguments], cwd=self.path, capture_output=True, text=True,
                              timeout=LIMIT_S, env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(text)

    def new(self, name="mine"):
        code, _, said = self.op("new", name, *(["--cuda"] if BACKEND == "cuda" else []))
        assert code == 0, said
        with open(os.path.join(self.path, f"{name}.{ENDING}")) as f:
            return f.read()

    def build(self, text, name="mine"):
        self.write(f"{name}.{ENDING}", text)
        code, out, said = self.op("build", f"{name}.{ENDING}")
        assert code == 0, said
        return out

    def library(self, text):
        """Compiled by hand, as somebody may who does not use op build."""
        self.write("by_hand.c", text)
        subprocess.run([CC, "-shared", "-fPIC", "-I", HEADERS, "by_hand.c", "-o", "by_hand.so",
                        "-lm"],
                       cwd=self.path, check=True, timeout=LIMIT_S, capture_output=True)
        return "by_hand.so"


def change(text, old, new, count=None):
    assert old in text, old
    return text.replace(old, new) if count is None else text.replace(old, new, count)


def the_guide_holds_command_by_command():
    with open(GUIDE) as f:
        guide = f.read()
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```", guide, re.M | re.S))
    assert commands.count("xopctl op ") == 4 and "verify" in commands, commands
    with Place() as place:
        done = subprocess.run(["bash", "-ec", commands], cwd=place.path, capture_output=True, text=True,
                              timeout=LIMIT_S, env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stdout + done.stderr
        assert "11" in done.stdout and "14" in done.stdout and "19" in done.stdout, done.stdout
        passed = [int(n) for n in re.findall(r"(\d+) passed, 0 failed", done.stdout)]
        assert len(passed) == 2 and passed[0] > 100, done.stdout
        assert os.path.exists(os.path.join(place.path, "operators/squared-cpu.so"))


def what_the_guide_quotes_is_what_is_said():
    with open(GUIDE) as f:
        guide = f.read()
    names = re.findall(r"`(xop_check_\w+|xop_elementwise|XOP_\w+|xop_library\w*)`", guide)
    headers = "".join(open(h).read() for h in glob.glob(os.path.join(HEADERS, "xop/*")))
    assert len(set(names)) > 10, names
    for name in names:
        assert re.search(rf"\b{name}\b", headers), name
    functor = re.search(r"^```cuda\n(.*?)^```", guide, re.M | re.S).group(1)
    template = open(os.path.join(HERE, "../../client/xopctl/templates/op.cu")).read()
    assert "out[0] = in[0] * in[0] + in[1];" in functor and "xop_elementwise<2, 1>(launch, forward()" in template


def a_new_operator_passes_and_is_named():
    with Place() as place:
        out = place.build(place.new())
        assert f"({KIND}): mine\n" in out, out
        code, out, said = place.op("check", f"mine-{KIND}.so", "--dtype", "f64")
        assert code == 0 and re.search(r"ok +mine backward f64 .*expected", out), (out, said)
        assert place.op("new", "mine", "--c")[0] == (0 if BACKEND == "cuda" else 73)
        for name in ["", "9lives", "Mine", "a-b", "x" * 64]:
            assert place.op("new", name)[0] == 64, name


def a_wrong_element_is_named():
    if BACKEND == "cuda":
        return  # its kernel is a functor, which has no index to get wrong
    with Place() as place:
        right = place.new()
        # The index of a known tutorial: a block's threads all take the element of the block.
        place.build(change(right, "y[i] = x[i] * x[i] + b[i];",
                           "y[i / 4] = x[i / 4] * x[i / 4] + b[i / 4];"))
        code, out, _ = place.op("check", "mine-cpu.so", "--dtype", "f32")
        assert code == 1 and re.search(r"FAIL mine forward f32\n +case 1: .*y\[1\] is -?nan, expected", out), out
        assert "ok   mine backward f32" in out, out
        place.build(change(right, "i < end; i++)\n            y[i]", "i <= end; i++)\n            y[i]"))
        code, out, _ = place.op("check", "mine-cpu.so", "--dtype", "f32")
        assert code == 1 and "wrote outside its output" in out and "of y" in out, out
        place.build(change(right, "grad_b[i] = grad_y[i];", "grad_b[i] = 1.01 * grad_y[i];"))
        code, out, _ = place.op("check", "mine-cpu.so", "--dtype", "f32", "--json")
        assert code == 1 and re.search(r'grad_b\[\d+\] is .* expected', out), out


def without_a_reference_differences_and_numbers_are_judged():
    with Place() as place:
        text = re.sub(r"XOP_REFERENCES\(.*\);\n", "", place.new())
        assert "without a reference" in place.build(text)
        code, out, said = place.op("check", f"mine-{KIND}.so", "--dtype", "f64", "--no-sanitizer")
        assert code == 0 and "without values to compare with" in out and "no reference" in said, (out, said)
        twice = "2 * (x[i] * grad_y[i])" if KIND == "cpu" else "2 * (in[X] * in[GRAD_Y])"
        place.build(change(text, twice, twice.replace("2", "3")))
        code, out, _ = place.op("check", f"mine-{KIND}.so", "--dtype", "f64")
        assert code == 1 and re.search(r"grad_x\[\d+\] is .* \(central difference\)", out), out
        code, out, _ = place.op("check", f"mine-{KIND}.so", "--dtype", "f32", "--reference", "square_bias",
                                "--shape", "100")
        assert code == 1 and re.search(r"grad_x\[\d+\] is .*, expected", out), out


def each_broken_operator_is_refused():
    for name, element, op, *options in [
            ("index", r"y\[1\] is", "square_bias"), ("tail", r"wrote outside its output.* of y", "square_bias"),
            ("unwritten", r"y\[\d+\] is -?nan", "square_bias"), ("gradient", r"grad_x\[\d+\] is", "square_bias"),
            ("half", r"grad_b\[\d+\] is", "square_bias"),
            ("product", r"y\[\d+\] is", "linear", "--dtype", "f32")]:
        library = os.path.join(BUILD, f"ops-broken/broken_{name}-{KIND}.so")
        if KIND == "cuda" and not os.path.exists(library):
            continue
        with Place() as place:
            code, out, said = place.op("check", library, "--reference", op, "--no-sanitizer", *options)
        assert code == 1 and f"FAIL broken_{name}" in out and re.search(element, out), (name, code, out, said)


def a_fault_ends_the_check_and_nothing_else():
    if BACKEND == "cuda" or os.environ.get("XOP_SAN"):
        return  # a sanitizer makes of the signal an end of its own
    with Place() as place:
        right = place.new()
        place.build(change(right, "        T *y = (T *)call->out[0].data;",
                           "        T *volatile y = (T *)(uintptr_t)64;"))
        code, out, said = place.op("check", "mine-cpu.so", TMPDIR=place.path)
        assert code == 1 and "DEVICE_FAULT" in out and "Segmentation fault" in out, (code, out, said)
        assert "0 passed, 1 failed" in out, out
        place.build(change(right, "double square = call", "*(volatile int *)64 = 1; double square = call"))
        code, _, said = place.op("check", "mine-cpu.so", TMPDIR=place.path)
        assert code == 70 and "Segmentation fault" in said and "its reference" in said, (code, said)
        place.build(change(right, "enum xop_status status = xop_check_same(\"x\"",
                           "return xop_fail(error, XOP_INVALID_ARGUMENT, \"no\");\n"
                           "    enum xop_status status = xop_check_same(\"x\""))
        code, out, _ = place.op("check", "mine-cpu.so", TMPDIR=place.path)
        assert code == 1 and "refuses the shapes of every case" in out, (code, out)
        # Nothing stays behind: no directory, and no daemon that would listen in one.
        assert not glob.glob(os.path.join(place.path, "xopctl-*")), os.listdir(place.path)


def what_cannot_be_loaded_is_told_by_name():
    with Place() as place:
        right = open(os.path.join(HERE, "../../client/xopctl/templates/op.c")).read()
        place.write("text.so", "no library")
        os.mkfifo(os.path.join(place.path, "pipe.so"))
        for expected, file in [("it is no shared object", "text.so"), ("no regular file", "pipe.so"),
                               ("No such file", "nowhere.so")]:
            code, _, said = place.op("check", file)
            assert code in (65, 66) and expected in said, (expected, code, said)
        for expected, text in [
                ("it exports no xop_library", "int nothing;"),
                ("built against version 7 of xop/op.h", 
                 change(right, "XOP_LIBRARY(", "#undef XOP_OP_ABI\n#define XOP_OP_ABI 7\nXOP_LIBRARY(")),
                ("undefined symbol: not_there", "extern int not_there(void); "
                 "__attribute__((constructor)) static void f(void) { not_there(); }"),
                ("structs have", change(right, "XOP_REFERENCES({", "#define xop_reference_call xop_call\nXOP_REFERENCES({")),
                ("has a reference for another_op", change(right, "{\"template_op\", {", "{\"another_op\", {")),
                ("no proper name", change(right, "\"template_op\"", "\"Template\"")),
                ("Aborted", "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }"),
                ("with status 3", "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { _exit(3); }")]:
            library = place.library(text)
            for action in ("check", "install"):
                code, _, said = place.op(action, library)
                assert code == 65 and "is refused" in said and expected in said, (expected, code, said)


def a_library_is_installed_where_its_backend_is_not():
    with Place() as place:
        for kind in ("cuda", "cpu"):
            library = place.library(change(open(os.path.join(HERE, "../../client/xopctl/templates/op.c")).read(),
                                           'XOP_LIBRARY("cpu"', f'XOP_LIBRARY("{kind}"'))
            code, _, said = place.op("install", "--directory", place.path, library)
            assert code == 0, (kind, said)
            if kind != "cpu" and BACKEND == "cpu":
                # Here is no such backend, or no device for it: told, and not tried for ever.
                code, _, said = place.op("check", library, CUDA_VISIBLE_DEVICES="")
                assert code == 69 and ("no worker for the backend cuda" in said or "ended before" in said), (code, said)
        library = place.library(change(open(os.path.join(HERE, "../../client/xopctl/templates/op.c")).read(),
                                       'XOP_LIBRARY("cpu"', 'XOP_LIBRARY("tpu"'))
        code, _, said = place.op("install", "--directory", place.path, library)
        assert code == 65 and "it is for the backend tpu" in said, (code, said)


def errors_of_the_compiler_have_file_and_line():
    with Place() as place:
        text = place.new()
        line = text[:text.index("static enum xop_status forward_launch")].count("\n") + 1
        place.write(f"mine.{ENDING}", change(text, "static enum xop_status forward_launch",
                                              "nonsense enum xop_status forward_launch"))
        code, _, said = place.op("build", f"mine.{ENDING}")
        assert code == 65 and re.search(rf"^mine\.{ENDING}:{line}:(\d+:)? error: ", said, re.M), said
        assert re.search(r"^xopctl: mine\.\w+: \d+ errors?$", said, re.M), said
        assert os.listdir(place.path) == [f"mine.{ENDING}"], os.listdir(place.path)
        place.write("script", "#!/bin/sh\necho 'mine.cu(12): error: identifier \"y\" is undefined'\nexit 2\n")
        os.chmod(os.path.join(place.path, "script"), 0o755)
        place.write("other.cu", "")
        code, _, said = place.op("build", "other.cu", NVCC=os.path.join(place.path, "script"))
        assert code == 65 and 'mine.cu:12: error: identifier "y" is undefined\n' in said, said
        code, _, said = place.op("build", "other.cu", NVCC="/nowhere/nvcc")
        assert code == 69 and "NVCC" in said, (code, said)
        assert place.op("build", "nowhere.c")[0] == 66 and place.op("build", "x.cpp")[0] == 64


def a_daemon_says_which_operators_bring_a_reference():
    with Place() as place:
        directory = os.path.join(place.path, "operators")
        os.mkdir(directory)
        text = place.new()
        place.build(text)
        place.build(re.sub(r"XOP_REFERENCES\(.*\);\n", "", text).replace('"mine"', '"bare"'), "bare")
        for name in ("mine", "bare"):
            assert place.op("install", "--directory", directory, f"{name}-{KIND}.so")[0] == 0
        with Daemon("--operators", directory) as daemon:
            out = subprocess.run([XOPCTL, "-s", f"unix:{daemon.path}", "ops", "--json"], capture_output=True,
                                 text=True, timeout=LIMIT_S, check=True).stdout
        brought = {op["name"]: op["reference"] for op in json.loads(out)["operators"]}
        assert brought["mine"] is True and brought["bare"] is False and brought["square_bias"] is False, brought


def install_replaces_whole_and_for_administrators_alone():
    with Place() as place:
        right = place.new()
        place.build(right)
        directory = os.path.join(place.path, "operators")
        code, _, said = place.op("install", "--directory", directory, f"mine-{KIND}.so")
        assert code == 73 and "create it" in said, (code, said)
        os.mkdir(directory)
        assert place.op("install", "--directory", directory, f"mine-{KIND}.so")[0] == 0
        target = os.path.join(directory, f"mine-{KIND}.so")
        before = os.stat(target)
        assert before.st_mode & 0o777 == 0o644, oct(before.st_mode)
        held = open(target, "rb")
        old = held.read()
        place.build(change(right, "squares its input", "squares its argument"))
        assert place.op("install", "--directory", directory, f"mine-{KIND}.so")[0] == 0
        # Who had the old file open still has the old bytes: it was replaced, not written.
        held.seek(0)
        assert held.read() == old and open(target, "rb").read() != old
        assert os.stat(target).st_ino != before.st_ino
        held.close()
        os.chmod(directory, 0o777)
        code, _, said = place.op("install", "--directory", directory, f"mine-{KIND}.so")
        assert code == 73 and "everybody may write" in said, (code, said)
        assert os.listdir(directory) == [f"mine-{KIND}.so"]


run([the_guide_holds_command_by_command,
     what_the_guide_quotes_is_what_is_said,
     a_new_operator_passes_and_is_named,
     a_wrong_element_is_named,
     without_a_reference_differences_and_numbers_are_judged,
     each_broken_operator_is_refused,
     a_fault_ends_the_check_and_nothing_else,
     what_cannot_be_loaded_is_told_by_name,
     a_library_is_installed_where_its_backend_is_not,
     errors_of_the_compiler_have_file_and_line,
     a_daemon_says_which_operators_bring_a_reference,
     install_replaces_whole_and_for_administrators_alone])
