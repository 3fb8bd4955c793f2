"""Finds a project's root and its CI, by its files and its git remote."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Host = Literal["github", "gitlab", "none"]

GITHUB = Path(".github/workflows/onnxport.yml")
GITLAB = Path(".gitlab-ci.yml")
# Included by the above if that is the user's own file.
GITLAB_PART = Path(".gitlab/onnxport.yml")
# In the first line of our files.
MARK = "Written by onnxport init"


@dataclass(frozen=True)
class Project:
    """The root of a repository, or the pipeline's own folder without one, and the pipeline's folder `inside` it."""

    root: Path
    inside: Path

    @property
    def host(self) -> Host:
        """The host, by its files, then by its remote; GitHub by default."""
        if (self.root / ".github").is_dir():
            return "github"
        if (self.root / GITLAB).is_file() or (self.root / ".gitlab").is_dir():
            return "gitlab"
        remotes = _git(self.root, "config", "--get-regexp", r"remote\..*\.url")
        return "gitlab" if "gitlab" in remotes else "github"

    def workflow(self, host: Host) -> Path | None:
        """Return the file for a host; if GitLab's is the user's own, a file that it can include."""
        if host == "none":
            return None
        if host == "github":
            return self.root / GITHUB
        own = self.root / GITLAB
        return self.root / GITLAB_PART if own.exists() and not _is_ours(own) else own


def _is_ours(file: Path) -> bool:
    try:
        return MARK in file.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return False


def project_of(folder: Path) -> Project:
    """Return the project of `folder`."""
    folder = folder.resolve()
    found = _git(folder, "rev-parse", "--show-toplevel").strip()
    root = Path(found).resolve() if found else folder
    if root != folder and root not in folder.parents:
        root = folder
    return Project(root, folder.relative_to(root))


def _git(folder: Path, *arguments: str) -> str:
    """Run git; empty if git is missing, or this is no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
