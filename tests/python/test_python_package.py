#!/usr/bin/python3
"""xop as a package: it agrees with the C headers, can be installed, and its types are right."""

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

from pyxop import BUILD, PACKAGE, ROOT, run

import xop
from xop import _dtypes, _library

LIMIT_S = 240


def command(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def structures_are_laid_out_as_c_has_them():
    names = {_library.CError: "xop_error", _library.CTensor: "xop_tensor",
             _library.CAttr: "xop_attr", _library.COptions: "xop_client_options",
             _library.CRequest: "xop_request", _library.CResult: "xop_result"}
    lines, expected = [], []
    for structure, name in names.items():
        lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
        expected.append(ctypes.sizeof(structure))
        for field, _ in structure._fields_:
            member = {"pass_": "pass", "in_": "in"}.get(field, field)
            lines.append(f'printf("%zu\\n", offsetof(struct {name}, {member}));')
            expected.append(getattr(structure, field).offset)
    with tempfile.TemporaryDirectory() as directory:
        source, program = os.path.join(directory, "layout.c"), os.path.join(directory, "layout")
        with open(source, "w") as f:
            f.write("#include <stdio.h>\n#include <xop/client.h>\nint main(void) {\n"
                    + "\n".join(lines) + "\nreturn 0;\n}\n")
        command(os.environ.get("CC", "gcc"), source, "-o", program,
                f"-I{ROOT}/proto/include", f"-I{ROOT}/client/include")
        assert [int(line) for line in command(program).split()] == expected


def numbers_and_names_are_those_of_the_headers():
    with open(f"{ROOT}/proto/include/xop/types.h") as f:
        types = f.read()
    statuses = re.search(r"enum xop_status \{(.*?)\};", types, re.S).group(1)
    found = {name: int(n) for name, n in re.findall(r"XOP_(\w+) = (\d+)", statuses)}
    assert found == {s.name: s.value for s in xop.Status}
    dtypes = re.search(r"enum xop_dtype \{(.*?)\};", types, re.S).group(1)
    found = {name.lower(): int(n) for name, n in re.findall(r"XOP_(\w+) = (\d+)", dtypes)}
    del found["dtype_none"]
    assert found == _dtypes.NUMBERS
    for limit, value in (("XOP_MAX_RANK", _library.MAX_RANK),
                         ("XOP_MAX_INPUTS", _library.MAX_OPERANDS)):
        assert re.search(rf"#define {limit} (\d+)", types).group(1) == str(value), limit
    with open(f"{ROOT}/VERSION") as f:
        assert f.read().strip() == xop.__version__
    for status in xop.Status:
        if status != xop.Status.OK:
            error = xop.errors.error_of(status, "a sentence")
            assert error.status == status and str(error) == error.message == "a sentence"
    assert "77" in str(xop.errors.error_of(77, "new"))


def the_library_is_found_or_missed_with_advice():
    def load(name):
        program = f"import sys; sys.path.insert(0, {PACKAGE!r}); import xop"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=LIMIT_S, env={**os.environ, "XOP_LIBRARY": name})
    missing = load("/nowhere/libxopclient.so.1")
    assert missing.returncode != 0 and "XOP_LIBRARY" in missing.stderr, missing
    assert "/nowhere/libxopclient.so.1" in missing.stderr
    other = load("libc.so.6")
    assert other.returncode != 0 and "has no xop_" in other.stderr, other


def pip_installs_it_without_a_network():
    with tempfile.TemporaryDirectory() as directory:
        tree, to = os.path.join(directory, "python"), os.path.join(directory, "to")
        command("cp", "-r", PACKAGE, tree)  # what pip builds it builds beside the source
        command(sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation",
                "--no-index", "--no-deps", "--disable-pip-version-check", "--target", to, tree,
                env={**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", "LD_PRELOAD": ""})
        assert os.path.exists(os.path.join(to, "xop", "py.typed"))
        installed = {n for n in os.listdir(os.path.join(to, "xop")) if n.endswith(".py")}
        assert installed == {n for n in os.listdir(os.path.join(PACKAGE, "xop"))
                             if n.endswith(".py")}
        program = "import xop; print(xop.__version__, xop.__file__)"
        said = command(sys.executable, "-c", program, cwd=directory,
                       env={**os.environ, "PYTHONPATH": to})
        assert said.split() == [xop.__version__, os.path.join(to, "xop", "__init__.py")], said


def types_hold():
    if importlib.util.find_spec("mypy") is None:
        print("# there is no mypy (python3-mypy): nothing is checked")
        return
    with tempfile.TemporaryDirectory() as cache:
        command(sys.executable, "-m", "mypy", "--cache-dir", cache, cwd=PACKAGE,
                env={**os.environ, "LD_PRELOAD": ""})


assert os.path.exists(os.path.join(BUILD, "libxopclient.so.1"))
run([structures_are_laid_out_as_c_has_them,
     numbers_and_names_are_those_of_the_headers,
     the_library_is_found_or_missed_with_advice,
     pip_installs_it_without_a_network,
     types_hold])
