"""The documentation keeps up with the code: links, navigation, options, examples."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from traceparity.cli.check import check
from traceparity.cli.diff import diff
from traceparity.cli.infer import infer
from traceparity.cli.record import record
from traceparity.cli.show import show
from traceparity.cli.verify import verify
from traceparity.differ.check import check_error
from traceparity.differ.check_json import as_dict as check_dict
from traceparity.differ.diff import error_result
from traceparity.differ.errors import PolicyError
from traceparity.differ.policy import Policy
from traceparity.differ.policy_file import read_policy
from traceparity.differ.report_json import as_dict
from traceparity.differ.result import Outcome
from traceparity.invariants.laws.pack import LAWS
from traceparity.recorder.settings import settings_from_file
from traceparity.verify.case import ROLES
from traceparity.verify.case_file import read_cases
from traceparity.verify.errors import CaseFileError
from traceparity.verify.execution import Execution
from traceparity.verify.report_json import as_dict as cases_dict
from traceparity.verify.result import CaseResult, Verdict, VerifyResult
from traceparity.verify.stage import Played

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
COMMANDS = {
    "tp-record": record,
    "tp-diff": diff,
    "tp-check": check,
    "tp-show": show,
    "tp-verify": verify,
    "tp-infer": infer,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as mkdocs makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).lower()) for head in headings}


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for page in [*PAGES, ROOT / "README.md"]:
        found = re.findall(
            rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE
        )
        yield from ((page, text) for text in found)


def options_in_help(command: click.Command) -> set[str]:
    context = click.Context(command, info_name=command.name, **command.context_settings)
    return {
        option
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))

    for link in links:
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)}: {link}"


def test_every_page_is_in_the_navigation_and_on_the_overview() -> None:
    in_navigation = re.findall(r": *([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    on_overview = re.findall(r"\]\(([\w/.-]+\.md)\)", (DOCS / "index.md").read_text())
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES}

    assert set(in_navigation) == pages
    assert len(in_navigation) == len(pages)
    assert {"index.md", *on_overview} == pages


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_lists_the_options_of_a_command_and_no_others(name: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `-")]
    listed = {option for cell in cells for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", cell)}

    assert listed == options_in_help(COMMANDS[name])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=name_of)
def test_commands_are_shown_with_options_that_they_have(page: Path) -> None:
    text = re.sub(r"\\\n\s*", "", page.read_text())

    for command, words in re.findall(
        r"(tp-(?:record|diff|check|show|verify|infer)) ([^`\n]*)", text
    ):
        ours = words.partition(" -- ")[0] if command in ("tp-record", "tp-verify") else words
        given = set(re.findall(r"(?:^|(?<=\s))--[a-z][\w-]*", ours.partition(" # ")[0]))
        assert given <= options_in_help(COMMANDS[command]), f"{name_of(page)}: {command} {words}"


def test_examples_of_policies_and_settings_are_read(tmp_path: Path) -> None:
    readers = {
        "[tool.traceparity]": ("pyproject.toml", settings_from_file),
        "[[case]]": ("parity.toml", read_cases),
        "": ("policy.toml", read_policy),
    }
    seen = set()

    for _, text in blocks("toml"):
        name, read = next(readers[mark] for mark in readers if mark in text)
        path = tmp_path / name
        path.write_text(text)
        read(path)
        seen.add(name)

    assert seen == {name for name, _ in readers.values()}


@pytest.mark.parametrize("table", ["align", "compare", "coverage"])
def test_the_policy_reference_lists_every_key(table: str, tmp_path: Path) -> None:
    """What the reader says of an unknown key names those that it knows."""
    path = tmp_path / "policy.toml"
    header = f"[[{table}]]" if table == "compare" else f"[{table}]"
    path.write_text(f"{header}\nbogus = 1\n")
    with pytest.raises(PolicyError) as caught:
        read_policy(path)
    known = set(str(caught.value).partition("known are ")[2].split(", "))

    page = (DOCS / "reference" / "policy.md").read_text()
    section = page.partition(f"\n## `{header}`\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    listed = {key for cell in rows for key in re.findall(r"`(\w+)`", cell)}
    assert known <= listed


def test_the_page_of_laws_lists_every_law_and_no_other() -> None:
    page = (DOCS / "reference" / "laws.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)

    assert sorted(listed) == sorted(law.id for law in LAWS)


def test_the_example_of_a_json_result_has_the_keys_of_one() -> None:
    ((_, text),) = blocks("json")
    example: dict[str, Any] = json.loads(text)
    result = as_dict(error_result("", Path("a"), [Path("b")], Policy()))

    assert example.keys() == result.keys()
    for key in ("reference", "alignment", "compared"):
        assert example[key].keys() == result[key].keys()


def test_the_json_reference_names_every_key() -> None:
    page = (DOCS / "reference" / "json.md").read_text()
    comparison = as_dict(error_result("", Path("a"), [Path("b")], Policy()))
    check_result = check_dict(check_error("", [Path("a")], Policy()))

    named = set(re.findall(r"`(\w+)`", page))
    assert comparison.keys() | comparison["compared"].keys() | check_result.keys() <= named


def test_the_reference_of_case_files_names_every_key(tmp_path: Path) -> None:
    """What the reader says of an unknown key names those that it knows; so does the result."""
    page = (DOCS / "reference" / "case-file.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    for kind in ROLES:
        path = tmp_path / "parity.toml"
        path.write_text(f'[[case]]\nkind = "{kind}"\nbogus = 1\n')
        with pytest.raises(CaseFileError) as caught:
            read_cases(path)
        assert set(str(caught.value).partition("known are ")[2].split(", ")) <= named

    execution = Execution(("x",), tmp_path, tmp_path, tmp_path)
    verdict = Verdict(Outcome.PASS, "")
    case = CaseResult("a", "repeat", verdict, (Played("command", execution),))
    data = cases_dict(VerifyResult(tmp_path, (case,)))
    (one,) = data["cases"]
    assert data.keys() | one.keys() | one["executions"][0].keys() <= named
