"""A problem in a configuration, and how a list of them is shown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_CHOICES = 24


@dataclass(frozen=True)
class Problem:
    """One thing the user has to change, as one line: `key: got X; allowed ...; did you mean ...`."""

    key: str
    got: str
    allowed: str
    hint: str = ""

    def __str__(self) -> str:
        line = f"{self.key}: got {self.got}; allowed {self.allowed}"
        return f"{line}; did you mean {self.hint}?" if self.hint else line


class ConfigError(ValueError):
    """A configuration that cannot run, with every problem found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(dict.fromkeys(problems))
        super().__init__("\n".join(map(str, self.problems)))

    def report(self) -> str:
        """The text for the terminal."""
        count = len(self.problems)
        head = f"{count} problem{'s' if count != 1 else ''} in the configuration; nothing was started:"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


def closest(word: str, words: Iterable[str]) -> str:
    """The name that was probably meant, or "" when none is near."""
    names = list(words)
    longer = [name for name in names if len(word) > 2 and word in name]
    matches = difflib.get_close_matches(word, names, n=1, cutoff=0.75) or longer
    return next(iter(matches or difflib.get_close_matches(word, names, n=1, cutoff=0.55)), "")


def listed(words: Iterable[object], shown: int = SHOWN_CHOICES) -> str:
    """Some words for a message, cut when there are very many."""
    names = [str(word) for word in words]
    if len(names) <= shown:
        return ", ".join(names)
    return ", ".join(names[:shown]) + f", ... ({len(names)} in all)"


def unknown_key(key: str, known: Iterable[str]) -> Problem:
    """The problem of a key that is not among the known ones of its group."""
    group, _, name = key.rpartition(".")
    names = [known_name for known_name in known if not known_name.startswith("_")]
    near = closest(name, names)
    hint = f"{group}.{near}" if near and group else near
    return Problem(
        key, "a key that does not exist", listed(names, 8 if near else SHOWN_CHOICES) or "no key here", hint
    )
