"""Children that a submission forks: they end as they would anywhere else, and none answers for its parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow import harness_ground as ground
from tests.services import GXX, needs

# Each child computes the answer, sends it to its parent by a pipe and then ends in its own way.
IN_CALLS = """
import ctypes, os, pickle, sys, tempfile, threading, time

kept = []

def in_child(data, to, end):
    with os.fdopen(to, "wb") as file:
        pickle.dump(sorted(data), file)
    if end == "exit":
        sys.exit(0)
    if end == "exit 3":
        sys.exit(3)
    if end == "exit text":
        sys.exit("the child's last words")
    if end == "raise":
        raise ValueError("in the child")
    if end == "file":
        kept.append(open(os.environ["LEFT"], "w"))
        kept[-1].write("left")  # and doesn't close it
    if end == "thread":
        def late():
            time.sleep(0.05)
            open(os.environ["LEFT"], "w").write("left")
        threading.Thread(target=late).start()
    if end == "wrong":
        return None
    return data[::-1]

def forked(data, end, fork):
    end = end or "return"
    fd, os.environ["LEFT"] = tempfile.mkstemp()
    os.close(fd)
    come, to = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(come)
        return None, in_child(data, to, end)
    os.close(to)
    with os.fdopen(come, "rb") as file:
        answer = pickle.load(file)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if end in ("file", "thread"):
        assert open(os.environ["LEFT"]).read() == "left", end
    os.unlink(os.environ["LEFT"])
    return code, answer

CODES = {"return": 0, "exit": 0, "exit 3": 3, "exit text": 1, "raise": 1, "file": 0, "thread": 0, "wrong": 0}

def custom_kernel(data):
    for end, wanted in CODES.items():
        code, answer = forked(data, end, os.fork)
        if code is None:
            return answer
        assert code == wanted, (end, code)
    code, answer = forked(data, "return", ctypes.CDLL(None).fork)
    assert code in (0, None), code
    return answer
"""
IN_THREADS = """
import multiprocessing, os, threading

def work(queue, data):
    queue.put(sorted(data))

def custom_kernel(data):
    codes = []
    def fork():
        pid = os.fork()
        if pid:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert codes == [0], codes
    own = multiprocessing.get_context("fork")
    queue = own.SimpleQueue()
    process = own.Process(target=work, args=(queue, data))
    process.start()
    answer = queue.get()
    process.join()
    assert process.exitcode == 0
    return answer
"""
AT_IMPORT = """
import os, sys

pids = []
for end in range(3):
    pid = os.fork()
    if pid == 0:
        if end == 1:
            raise ValueError("in the child")
        if end == 2:
            sys.exit(7)
        break
    pids.append(pid)
if len(pids) == 3:
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0, 1, 7], codes

def custom_kernel(data):
    assert len(pids) == 3, "a child serves"
    return sorted(data)
"""
IN_CPP = """
#include "kbslurm.h"
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const int codes[] = {0, 1, 1};
  for (int end = 0; end < 3; ++end) {
    const pid_t child = fork();
    if (child == 0) {
      for (long long i = 0; i < out[0].size; ++i) static_cast<float *>(out[0].data)[i] = -1;
      if (end == 2) throw std::runtime_error("in the child");
      return end ? 7 : 0;
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) throw std::runtime_error("it didn't end by itself");
    if (WEXITSTATUS(status) != codes[end]) throw std::runtime_error("another status");
  }
  const float *x = static_cast<const float *>(in[0].data);
  for (long long i = 0; i < in[0].size; ++i) static_cast<float *>(out[0].data)[i] = 2 * x[i];
  return 0;
}
"""
DOUBLED = """
import array, random

def generate_input(n, seed):
    draw = random.Random(seed)
    return array.array("f", (draw.random() for _ in range(n)))

def ref_kernel(data):
    return array.array("f", (2 * x for x in data))

def check_implementation(data, output):
    return output == ref_kernel(data), "not doubled"
"""


@pytest.mark.parametrize("level", ["2", "1"])
@pytest.mark.parametrize("source", [IN_CALLS, IN_THREADS, AT_IMPORT], ids=["calls", "threads", "import"])
def test_a_forked_child_ends_as_anywhere_else(tmp_path: Path, source: str, level: str) -> None:
    told = ground.manifest(source, hidden=[], mode="leaderboard" if level == "2" else "test")
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "passed", (report.reason, report.log[-2000:])
    assert "kbslurm_eval" not in report.log
    if source != IN_THREADS:
        assert "ValueError: in the child" in report.log
    if source == IN_CALLS:
        assert "the child's last words" in report.log


@needs(GXX)
@pytest.mark.parametrize("level", ["2", "1"])
def test_a_child_of_compiled_code_ends_where_its_function_does(tmp_path: Path, level: str) -> None:
    told = ground.manifest(
        IN_CPP, lang="cu", entry="submission.cu", files={"reference.py": DOUBLED}, hidden=[],
        mode="leaderboard" if level == "2" else "test",
    )  # fmt: skip
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "passed", (report.reason, report.log[-2000:])
    assert "in the child" in report.log
