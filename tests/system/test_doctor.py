#!/usr/bin/python3
"""xopctl doctor on certificates that are about to end."""

import datetime
import json
import os
import subprocess
import tempfile

from certificates import Authority
from xopd import BUILD, LIMIT_S, run

NOW = datetime.datetime.now(datetime.timezone.utc)


def dates(begins, ends):
    """Arguments for a certificate of so many days from now."""
    text = [(NOW + datetime.timedelta(days)).strftime("%Y%m%d%H%M%SZ") for days in (begins, ends)]
    return ["-startdate", text[0], "-enddate", text[1]]


def doctor(certificate, shown=None):
    """What is found of the certificates that a configuration and --cert name."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        config.write(f"[server]\nlisten = tls:127.0.0.1:0\n[tls]\ncert = {certificate} ; ours\n")
        config.flush()
        found = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", "unix:/nonexistent/s",
                                *(["--cert", shown] if shown else []), "doctor", "--config",
                                config.name, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    assert found.returncode == 2, found # no daemon answers
    return [f for f in json.loads(found.stdout)["findings"] if f["check"] == "certificates"]


def days_that_are_left_are_told_and_few_are_a_warning():
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(os.path.join(directory, "ca"))
        for name, begins, ends, grade, says in (
                ("long", -1, 90.5, "ok", "holds for 90 days"),
                ("short", -1, 12.5, "warning", "(/CN=short) expires in 12 days"),
                ("ended", -9, -2.5, "problem", "expired 3 days ago"),
                ("early", 0.1, 90, "problem", "is not valid yet")):
            certificate, _ = authority.issue(name, *dates(begins, ends))
            finding, = doctor(certificate)
            assert finding["grade"] == grade and says in finding["found"], finding
            assert (finding["advice"] == "") == (grade == "ok"), finding


def of_a_file_with_several_the_first_to_end_counts():
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(os.path.join(directory, "ca"))
        chain = os.path.join(directory, "chain.pem")
        with open(chain, "w") as out:
            for name, ends in (("leaf", 90.5), ("between", 7.5)):
                with open(authority.issue(name, *dates(-1, ends))[0]) as f:
                    out.write(f.read())
        shown, _ = authority.issue("shown", *dates(-1, 20.5))
        ours, theirs = doctor(chain, shown)
        assert "the server's certificate" in ours["found"] and "(/CN=between) expires in 7 days" in ours["found"]
        assert "--cert" in theirs["found"] and "20 days" in theirs["found"], theirs


def what_is_no_certificate_is_a_problem():
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(os.path.join(directory, "ca"))
        _, key = authority.issue("server")
        for path, says in ((key, "no PEM certificate"), (directory + "/none.pem", "No such file")):
            finding, = doctor(path)
            assert finding["grade"] == "problem" and says in finding["found"], finding


run([days_that_are_left_are_told_and_few_are_a_warning,
     of_a_file_with_several_the_first_to_end_counts,
     what_is_no_certificate_is_a_problem])
