"""The `vmamba2` command: `vmamba2 COMMAND [OPTION...]`."""

import difflib
import sys
from collections.abc import Callable, Sequence

from ops_ascend import build, support


def _benchmark(arguments: Sequence[str]) -> int:
    # Imported on demand: it needs timm, which takes seconds.
    from vmamba2.tools import benchmark

    return benchmark.main(arguments)


COMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], int]]] = {
    "benchmark": ("time a training step beside what people use today", _benchmark),
    "build-ops": ("build the native libraries that this machine allows", build.main),
    "support": ("print which backend supports what", support.main),
}


def usage() -> str:
    """What the command offers, one line each."""
    lines = [f"  {name:<12} {summary}" for name, (summary, _) in COMMANDS.items()]
    return "\n".join(["usage: vmamba2 COMMAND [OPTION...]", "", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 2 when there is none of that name."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in COMMANDS:
        return COMMANDS[name][1](rest)
    if name in ("-h", "--help"):
        sys.stdout.write(f"{usage()}\n")
        return 0
    near = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it must be one of {', '.join(COMMANDS)}"
    sys.stderr.write(f"vmamba2: unknown command {name!r}{hint}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
