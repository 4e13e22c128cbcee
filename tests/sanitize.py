"""Run the operator tests of the CPU kernels under the address and undefined-behaviour sanitizers of GCC.

    python -m tests.sanitize [PYTEST OPTION...]

Builds the libraries for the best instructions of this processor once more, into build/sanitize, and runs the
tables, traps, field reports and random calls on them. Whatever a sanitizer finds ends the run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from ops_ascend import cpu
from ops_ascend.build import NoCompilerError, build

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "sanitize"
FILES = (
    "test_ssd_scan.py", "test_ssd_cross_scan.py", "test_selective_scan.py", "test_ssd_traps.py",
    "test_golden.py", "test_cpu.py", "test_cpu_field_reports.py", "test_cpu_random.py", "test_cpu_threads.py",
)  # fmt: skip
# On this backend, and in this process: others would be without the sanitized libraries. And not what compares
# bits or repeats small calls.
WHICH = "cpu and not pytorch and not forked and not second_thread and not same_bits and not gradcheck"


def runtimes() -> str:
    """The sanitizers' own libraries, which must be in the process before all others."""
    cache = (FOLDER / "build" / "cpu" / "CMakeCache.txt").read_text()
    (compiler,) = re.findall(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    names = ("libasan.so", "libubsan.so")
    return " ".join(
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    )


def main() -> int:
    try:
        if cpu.missing():
            build(sys.stdout.write, ("cpu",))
        sets = sorted({"generic", *cpu.instruction_sets()[:1]})
        options = ("-DVMAMBA2_SANITIZE=ON", f"-DVMAMBA2_INSTRUCTIONS={';'.join(sets)}")
        build(sys.stdout.write, ("cpu",), FOLDER, options=options)
    except NoCompilerError as error:
        sys.stdout.write(f"nothing to check: {error}\n")
        return 0
    environment = os.environ | {
        "LD_PRELOAD": runtimes(),
        # Python and PyTorch keep what they allocated when they end.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--cpu-libraries", str(FOLDER), "-k", WHICH]
    files = [f"tests/ops/{name}" for name in FILES]
    command += [*files, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
