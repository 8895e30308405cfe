"""The packages that are installed are the folders on disk, files and all."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "differ", "invariants", "recorder", "tracefmt", "verify")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def folder_of(package: str) -> Path:
    """The folder on disk of a dotted name, by the root folders and not by the links."""
    _, *parts = package.split(".")
    return ROOT.joinpath(*parts) if parts else ROOT / "traceparity"


def files_in(folder: Path) -> set[Path]:
    return {
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_folder_with_code_is_listed():
    on_disk = {"traceparity"} | {
        ".".join(("traceparity", *init.parent.relative_to(ROOT).parts))
        for top in FOLDERS
        for init in (ROOT / top).rglob("__init__.py")
    }

    assert set(SETUPTOOLS["packages"]) == on_disk


def test_every_root_folder_is_mapped():
    mapping = {"traceparity": "traceparity"} | {f"traceparity.{top}": top for top in FOLDERS}

    assert SETUPTOOLS["package-dir"] == mapping


def test_every_file_of_a_package_is_shipped():
    """A file that is no module of a listed package must be named in package-data."""
    modules = {path for name in SETUPTOOLS["packages"] for path in folder_of(name).glob("*.py")}
    data = {
        path
        for name, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in folder_of(name).glob(pattern)
    }
    on_disk = {path for top in FOLDERS for path in files_in(ROOT / top)}

    assert on_disk - modules - data == set()


def test_the_facade_folder_holds_nothing_else():
    facade = ROOT / "traceparity"
    names = {path.name for path in facade.iterdir()} - {"__pycache__"}

    assert names == {"__init__.py", "_version.py", "py.typed", *FOLDERS}


def test_the_links_of_the_facade_lead_to_the_root_folders():
    links = {top: str((ROOT / "traceparity" / top).readlink()) for top in FOLDERS}

    assert links == {top: f"../{top}" for top in FOLDERS}
