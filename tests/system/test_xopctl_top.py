#!/usr/bin/python3
"""xopctl top and stats --watch: on a terminal, where there is none, and as JSON."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import numpy as np

from xopd import BUILD, LIMIT_S, Daemon, run

XOPCTL = os.path.join(BUILD, "xopctl")
X = np.arange(1000, dtype=np.float32)


@contextlib.contextmanager
def busy(daemon, agent="busy"):
    """A client that sends requests, some of them wrong, until the block ends."""
    ended, failed = threading.Event(), []

    def work():
        try:
            client = daemon.client(hello=False)
            client.send({"type": "hello", "version_min": 1, "version_max": 1, "agent": agent})
            client.hello, _ = client.receive()
            while not ended.is_set():
                client.run("sigmoid", [X])
                client.submit("sigmoid", [X, X])
                header, _ = client.answer()
                assert header["status"], header
        except Exception as e:
            failed.append(e)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()
    assert not failed, failed


class Terminal:
    """xopctl on a terminal of its own; what it draws is kept."""

    def __init__(self, daemon, *arguments, size=(30, 160)):
        self.terminal, self.side = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.side)
        self.drawn = ""

        def own_it(): # the shell's part: ^C reaches who is in the foreground
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([XOPCTL, "-s", f"unix:{daemon.path}", *arguments],
                                        stdin=self.side, stdout=self.side, stderr=self.side,
                                        preexec_fn=own_it)

    def resize(self, rows, columns):
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, pattern):
        """Reads until what has been drawn since the last call has this; returns the match."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            if match := re.search(pattern, self.drawn, re.S):
                self.drawn = self.drawn[match.end():]
                return match
            assert time.monotonic() < deadline, (pattern, self.drawn[-3000:])
            if select.select([self.terminal], [], [], 1)[0]:
                self.drawn += os.read(self.terminal, 65536).decode()

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def end(self):
        status = self.process.wait(LIMIT_S)
        while select.select([self.terminal], [], [], 0)[0]:
            self.drawn += os.read(self.terminal, 65536).decode()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.terminal)
        os.close(self.side)


ENTERED, LEFT = "\033[?1049h", "\033[?25h\033[?1049l"


def the_terminal_is_left_as_it_was_however_it_ends():
    with Daemon() as daemon:
        for verb in (["top", "--interval", "0.1"], ["stats", "--watch", "0.1"]):
            for key, status in (("q", 0), ("\x03", -signal.SIGINT), (None, -signal.SIGTERM)):
                with Terminal(daemon, *verb) as terminal:
                    terminal.until(re.escape(ENTERED) + ".*err/s")
                    assert not termios.tcgetattr(terminal.side)[3] & termios.ECHO
                    if key:
                        terminal.press(key)
                    else:
                        terminal.process.send_signal(signal.SIGTERM)
                    assert terminal.end() == status, (verb, key)
                    assert terminal.drawn.endswith(LEFT), terminal.drawn[-200:]
                    assert termios.tcgetattr(terminal.side) == terminal.before


def rates_of_a_busy_client_are_shown():
    with Daemon() as daemon, busy(daemon), Terminal(daemon, "top", "--interval", "0.1") as terminal:
        row = terminal.until(r"sigmoid +forward +([1-9]\d*\.\d) +([1-9]\d*\.\d) +[\d.]+ \w*B +[\d.]+ \w*B"
                             r" +1\.0 +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+)\033")
        assert 0 < float(row.group(3)) <= float(row.group(4)), row.groups()
        terminal.press("c")
        terminal.until(r"client +identity +agent +>req/s.*busy +[1-9]\d*\.\d +[1-9]")


def keys_choose_the_column_and_turn_it_round():
    with Daemon() as daemon, busy(daemon), Terminal(daemon, "top", "--interval", "0.2") as terminal:
        terminal.until("operator +pass +>req/s +err/s")
        terminal.press(">")
        terminal.until("req/s +>err/s")
        terminal.press("\033[D\x1b[D")
        terminal.until("operator +>pass")
        terminal.press("c")
        terminal.until(r"busy .*xopctl")
        terminal.press("r")
        terminal.until(r"xopctl .*busy")


def a_terminal_of_another_size_is_filled_and_not_more():
    with Daemon() as daemon, Terminal(daemon, "top", "--interval", "999") as terminal:
        terminal.until("err/s")
        terminal.resize(10, 36)
        terminal.until(r"operator +pass +>r\033")
        terminal.resize(3, 200)
        # The screen has room for what stands above the table and for nothing of it.
        drawn = terminal.until(r"\033\[H(.*?)\033\[J\033?").group(1)
        while "attached" not in drawn:
            drawn = terminal.until(r"\033\[H(.*?)\033\[J").group(1)
        assert "err/s" not in drawn, drawn


def stopped_it_gives_the_terminal_back_until_it_goes_on():
    with Daemon() as daemon, Terminal(daemon, "top", "--interval", "0.1") as terminal:
        terminal.until("err/s")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(re.escape(LEFT))
        os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert termios.tcgetattr(terminal.side) == terminal.before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(re.escape(ENTERED) + ".*err/s")
        terminal.press("q")
        assert terminal.end() == 0


def a_server_that_is_gone_is_waited_for():
    with Daemon() as daemon, Terminal(daemon, "top", "--interval", "0.1") as terminal:
        terminal.until("err/s")
        daemon.process.send_signal(signal.SIGTERM)
        terminal.until("no newer reading: .")
        daemon.process.wait(LIMIT_S)
        other = subprocess.Popen([os.path.join(BUILD, "xopd"), "--backend", "cpu", "--listen",
                                  f"unix:{daemon.path}"], stderr=subprocess.DEVNULL)
        try:
            terminal.until(r"\033\[Hxopd [^\n]*\n[^\n]*\nq quit")
            terminal.press("q")
            assert terminal.end() == 0
        finally:
            other.terminate()
            other.wait(LIMIT_S)


def lines(daemon, *arguments):
    found = subprocess.run([XOPCTL, "-s", f"unix:{daemon.path}", *arguments], capture_output=True,
                           text=True, timeout=LIMIT_S)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def as_json_it_is_a_document_a_line_with_rates():
    with Daemon() as daemon, busy(daemon):
        for verb in (["top", "--interval", "0.2"], ["stats", "--watch", "0.2"]):
            documents = [json.loads(line) for line in lines(daemon, *verb, "--count", "3", "--json")]
            assert len(documents) == 3
            for before, after in zip(documents, documents[1:]):
                rates = after["rates"]
                was, now = (next(o for o in d["operators"] if o["name"] == "sigmoid")
                            for d in (before, after))
                row = next(o for o in rates["operators"] if o["name"] == "sigmoid")
                took = after["server"]["uptime_s"] - before["server"]["uptime_s"]
                assert abs(rates["interval_s"] - took) < 1e-9
                assert abs(row["requests_per_s"] - (now["requests"] - was["requests"]) / took) < 1e-6
                assert row["errors_per_s"] > 0 and row["batch_mean"] == 1, row
                # What ran in between, by hand.
                counts = sorted((int(ns), n - was["run_us"]["counts"].get(ns, 0))
                                for ns, n in now["run_us"]["counts"].items())
                values = np.repeat([ns for ns, n in counts], [n for ns, n in counts])
                for share, key in ((0.5, "run_p50_us"), (0.99, "run_p99_us")):
                    at = values[int(np.ceil(share * len(values))) - 1] / 1000
                    assert abs(row[key] - at) < 1e-9, (key, row, at)
                client = next(c for c in rates["clients"] if c["agent"] == "busy")
                assert client["requests_per_s"] > 0 and client["bytes_in_per_s"] > 0, client


def without_a_terminal_it_is_plain_text():
    with Daemon() as daemon, busy(daemon, "\033[2Jevil"):
        text = lines(daemon, "stats", "--watch", "0.1", "--count", "2")
        assert "\033" not in "\n".join(text)
        assert sum(line.startswith("operator ") for line in text) == 2, text
        assert sum(line.startswith(" client ") for line in text) == 2, text
        assert not any(line.endswith(" ") for line in text)
        text = lines(daemon, "top", "--by", "clients", "--interval", "0.1", "--count", "1", "--sort",
                     "peer")
        assert "operator " not in "\n".join(text) and ">peer" in "\n".join(text), text


def wrong_usage_says_what_is_right():
    with Daemon() as daemon:
        for arguments, says in ((["top", "--by", "gpu"], "operators or clients"),
                                (["top", "--sort", "x"], "requests_per_s, "),
                                (["top", "--interval", "0"], "seconds are expected"),
                                (["top", "--count", "0"], "from 1 on"),
                                (["stats", "--count", "3"], "goes with --watch"),
                                (["stats", "--watch", "x"], "seconds are expected")):
            found = subprocess.run([XOPCTL, "-s", f"unix:{daemon.path}", *arguments],
                                   capture_output=True, text=True, timeout=LIMIT_S)
            assert found.returncode == 64 and says in found.stderr, (arguments, found)


run([the_terminal_is_left_as_it_was_however_it_ends,
     rates_of_a_busy_client_are_shown,
     keys_choose_the_column_and_turn_it_round,
     a_terminal_of_another_size_is_filled_and_not_more,
     stopped_it_gives_the_terminal_back_until_it_goes_on,
     a_server_that_is_gone_is_waited_for,
     as_json_it_is_a_document_a_line_with_rates,
     without_a_terminal_it_is_plain_text,
     wrong_usage_says_what_is_right])
