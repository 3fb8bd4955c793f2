"""One attack by hand: what it must end with, and what it must not have reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.campaign import MEMORY
from tests.hostile.forks import Forks, Run

SECRET = b"the secret of this machine 9e107d9d372bb6826bd81d3542a419d6 "


@dataclass(frozen=True)
class Target:
    """`folder` is what the user got from the attacker; beside it lies `secret.bin`, which no command may read."""

    folder: Path
    running: Forks
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, root: Path, running: Forks) -> Target:
        folder = root / "got"
        folder.mkdir()
        (root / "secret.bin").write_bytes(SECRET * 100)
        return cls(folder, running)

    @property
    def secret(self) -> Path:
        return self.folder.parent / "secret.bin"

    def run(self, *arguments: str, timeout: float = 60.0) -> Run:
        """Run a command in the folder; it must end in time, with little memory, and touch nothing outside."""
        before = _files(self.folder.parent, self.folder)
        run = self.running.run(self.folder, *arguments, timeout=timeout, environment=self.environment)
        assert run.seconds is not None, f"ran past {timeout} s"
        assert run.code >= 0, f"ended by signal {-run.code}"
        assert run.peak < MEMORY, f"took {run.peak / 1e9:.1f} GB"
        assert "Traceback" not in run.stdout + run.stderr, run.stderr
        assert SECRET.decode().strip() not in run.stdout + run.stderr
        assert _files(self.folder.parent, self.folder) == before, "it wrote outside of the folder"
        for file in self.folder.rglob("*"):
            if file.is_file() and not file.is_symlink() and file.stat().st_nlink == 1:
                assert SECRET not in file.read_bytes(), f"{file} holds the secret"
        return run

    def refuses(self, code: int, arguments: tuple[str, ...], *says: str) -> None:
        """Fail unless the command ends with `code` and a sentence that has each of `says`."""
        run = self.run(*arguments)
        assert run.code == code, run.stderr
        assert run.stderr.endswith(f"\nexit {code}\n") or not code
        for part in says:
            assert part in run.stderr, run.stderr
        assert all(line.isprintable() for line in (run.stdout + run.stderr).split("\n"))


Attack = Callable[[Target], tuple[str, ...]]


@dataclass(frozen=True)
class Case:
    """An attack's preparation, which returns the command, and what refuses it."""

    code: int
    prepare: Attack
    says: tuple[str, ...]


def registering(cases: dict[str, Case]) -> Callable[..., Callable[[Attack], None]]:
    """A decorator `attack(code, *says)` that puts what it decorates into `cases`, under its name."""

    def attack(code: int, *says: str) -> Callable[[Attack], None]:
        def register(prepare: Attack) -> None:
            cases[prepare.__name__] = Case(code, prepare, says)

        return register

    return attack


def _files(root: Path, but: Path) -> Mapping[Path, tuple[int, int]]:
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in root.rglob("*")
        if path != but and but not in path.parents
    }
