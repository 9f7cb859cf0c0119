#!/usr/bin/python3
"""The manual pages name what the programs offer."""

import os
import re
import subprocess

from xopd import BUILD, run

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")


def page(name):
    with open(os.path.join(DOCS, name)) as f:
        return f.read()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def every_configuration_key_is_in_its_page():
    text, section = page("xopd.conf.5"), None
    keys = 0
    for line in output(os.path.join(BUILD, "xopd"), "--help-config").splitlines():
        if line.startswith("["):
            section = line
            assert f".Ss {section}" in text, section
        elif match := re.fullmatch(r"# (\w+) =", line):
            keys += 1
            assert f".It Li {match.group(1)}\n" in text, (section, match.group(1))
    assert keys > 20, keys


def the_keys_that_need_a_restart_are_named():
    section, needed, restarts = None, False, set()
    for line in output(os.path.join(BUILD, "xopd"), "--help-config").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif match := re.fullmatch(r"# (\w+) =", line):
            restarts |= {f"{section}.{match.group(1)}"} if needed else set()
        needed = line.endswith("; needs a restart")
    paragraph = page("xopd.conf.5").split("These keys need a restart")[1].split("\nA limit")[0]
    assert set(re.findall(r"\.Li ([\w.]+) [,.]", paragraph)) == restarts, restarts


def every_option_of_xopd_is_in_its_page():
    for option in re.findall(r"--([a-z-]+)", output(os.path.join(BUILD, "xopd"), "--help")):
        assert f"-{option}" in page("xopd.8"), option


def every_verb_and_option_of_xopctl_is_in_its_page():
    text = page("xopctl.1")
    xopctl = os.path.join(BUILD, "xopctl")
    for verb in re.findall(r"^  (\w+) ", output(xopctl, "--help"), re.M):
        assert f".Ss {verb}" in text, verb
        for option in re.findall(r"--([a-z]+)", output(xopctl, verb, "--help")):
            assert f"Fl -{option}" in text, (verb, option)


def completion_offers_every_verb_and_option_of_xopctl():
    xopctl = os.path.join(BUILD, "xopctl")
    verbs = re.findall(r"^  (\w+) ", output(xopctl, "--help"), re.M)
    assert "doctor" in verbs, verbs
    for shell, verb in [(shell, verb) for shell in ("bash", "zsh") for verb in verbs]:
        text = page(f"../client/xopctl/completion.{shell}")
        rows = re.findall(rf"^ *(?:\w+ \| )*{verb}(?: \| \w+)*\) ?.*?;;", text, re.M | re.S)
        offered = re.findall(r"--[a-z-]+", "".join(rows))
        wanted = re.findall(r"--[a-z-]+", output(xopctl, verb, "--help"))
        assert wanted and set(wanted) <= set(offered), (shell, verb, set(wanted) - set(offered))
        # Where the verb of a command line is found, beside its own row.
        assert re.search(rf"^ *(?:\w+ \| )*{verb} (?:\| \w+)*.*\) verb=", text, re.M), (shell, verb)
        assert len(re.findall(rf"names=['(][^')]*\b{verb}\b[^')]*[')]", text)) == 2, (shell, verb)


def every_function_of_the_library_is_in_its_page():
    with open(os.path.join(DOCS, "../client/include/xop/client.h")) as f:
        header = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    names = set(re.findall(r"\b(xop_\w+)\(", header))
    text = page("libxopclient.3")
    for name in names:
        assert re.search(rf"^\.Fn {name} ", text, re.M), name
    # And the library has it, but for those that the header defines.
    library = output("nm", "-D", "--defined-only", os.path.join(BUILD, "libxopclient.so"))
    exported = set(re.findall(r" T (xop_\w+)", library))
    assert exported == names - {"xop_tensor_1d", "xop_tensor_2d"}, exported ^ names


def the_table_of_drivers_is_what_doctor_goes_by():
    rows = re.findall(r"\{(\d+), \"([\d.]+)\"\}", page("../client/xopctl/cuda_versions.c").split("};")[1])
    documented = re.findall(r"^\| (\d+)\.(\d+) \| ([\d.]+) \|$", page("gpu.md"), re.M)
    assert len(rows) > 20 and rows == [(f"{1000 * int(major) + 10 * int(minor)}", driver)
                                       for major, minor, driver in documented], documented


run([every_configuration_key_is_in_its_page,
     the_keys_that_need_a_restart_are_named,
     every_option_of_xopd_is_in_its_page,
     every_verb_and_option_of_xopctl_is_in_its_page,
     completion_offers_every_verb_and_option_of_xopctl,
     every_function_of_the_library_is_in_its_page,
     the_table_of_drivers_is_what_doctor_goes_by])
