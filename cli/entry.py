"""Where the commands begin, before anything that takes time to import.

Ctrl-C while a command is still being imported must end it as quietly as later on.
"""

import sys


def _run(module: str) -> None:
    try:
        # Not importlib, whose frames would add to the time in which Ctrl-C is not caught.
        main = __import__(f"traceparity.cli.{module}", fromlist=["main"]).main
        main()
    except KeyboardInterrupt:
        sys.exit(130)


def check() -> None:
    """Run ``tp-check``."""
    _run("check")


def diff() -> None:
    """Run ``tp-diff``."""
    _run("diff")


def infer() -> None:
    """Run ``tp-infer``."""
    _run("infer")


def record() -> None:
    """Run ``tp-record``."""
    _run("record")


def show() -> None:
    """Run ``tp-show``."""
    _run("show")


def verify() -> None:
    """Run ``tp-verify``."""
    _run("verify")
