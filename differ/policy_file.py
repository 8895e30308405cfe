"""Reading policy files (TOML): every mistake is told with file, line and key."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceparity.differ.errors import PolicyError
from traceparity.differ.law_names import ALL_LAWS, LAW_NAMES, LAW_WORDS
from traceparity.differ.policy import PHASES, Align, Coverage, Policy, Rule
from traceparity.differ.preset import PRESETS, preset_text
from traceparity.differ.toml_tables import Checks, Mistakes, TomlFile, listed, read_text
from traceparity.differ.universe import span_of

_ALIGN_WORDS = {
    "kind": ("start", "resume", "accumulation"),
    "ranks": ("one_to_one", "replicated", "sharded"),
    "order": ("exact", "free"),
    "unmatched": ("fail", "allow"),
    "evaluation": ("context", "compare"),
    "device": ("context", "compare"),
    "rng": ("context", "compare"),
    "loss": ("sum", "mean", "weighted", "skip"),
}
_COVERAGE_WORDS = {
    "policy": ("exactly_once", "at_least_once", "no_cross_rank_overlap", "expected_padding"),
    "scope": ("epoch", "trace"),
    "count": ("trained", "fetched"),
}
_KEYS = {
    "align": {*_ALIGN_WORDS, "step_offset", "microbatches", "loss_weight", "phases", "rename"},
    "compare": {
        "site",
        "rtol",
        "atol",
        "rel_l2",
        "ulp",
        "symmetric",
        "tolerance",
        "equal_nan",
        "ignore",
    },
    "coverage": {*_COVERAGE_WORDS, "id", "expected", "padding"},
    "laws": {ALL_LAWS, *LAW_NAMES},
}
_GOES_WITH = {
    "step_offset": "resume",
    "microbatches": "accumulation",
    "loss": "accumulation",
    "loss_weight": "accumulation",
}
_LIMITS = ("rtol", "atol", "rel_l2")


def read_policy(path: Path) -> Policy:
    """The policy that a file declares, or the preset of that name where there is no such file.

    Raises:
        PolicyError: The file cannot be read, is no TOML, or declares something impossible.
    """
    if str(path) in PRESETS and not path.is_file():
        text = preset_text(str(path))
    else:
        presets = f"; presets are {', '.join(PRESETS)}" if path.name == str(path) else ""
        text = read_text(path, "policy", PolicyError, presets)
    file = TomlFile(str(path), text)
    return policy_from(file.tables, file)


def policy_from(tables: Mapping[str, Any], mistakes: Mistakes) -> Policy:
    """The policy that tables declare which stand in a file of policies or in another one.

    Raises:
        TraceparityError: They declare something impossible.
    """
    return _Parser(mistakes).policy(tables)


class _Parser(Checks):
    """Checks the tables of one policy."""

    def policy(self, tables: Mapping[str, Any]) -> Policy:
        for name, table in tables.items():
            if name not in _KEYS:
                raise self.error(name, "", f"unknown table; known are {listed(_KEYS)}")
            expected, word = (
                (list, "an array of tables") if name == "compare" else (dict, "a table")
            )
            if not isinstance(table, expected):
                raise self.error(name, "", f"must be {word}")
        rules = tuple(
            self._rule(number, table) for number, table in enumerate(tables.get("compare", []))
        )
        coverage = self._coverage(tables["coverage"]) if "coverage" in tables else None
        laws = self._laws(tables.get("laws", {}))
        return Policy(self._align(tables.get("align", {})), rules, coverage, laws)

    def _laws(self, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        self.known("laws", table, _KEYS["laws"])
        return tuple((key, self.word("laws", table, key, LAW_WORDS)) for key in table)

    def _align(self, table: Mapping[str, Any]) -> Align:
        self.known("align", table, _KEYS["align"])
        words = {key: self.word("align", table, key, _ALIGN_WORDS[key]) for key in _ALIGN_WORDS}
        values: dict[str, Any] = {key: word for key, word in words.items() if word}
        kind = values.get("kind", "start")
        for key, needed in _GOES_WITH.items():
            if key in table and kind != needed:
                raise self.error("align", key, f'goes with kind = "{needed}" only')
        if "loss_weight" in table:
            values["loss_weight"] = self._loss_weight(table["loss_weight"], values.get("loss"))
        if table.get("step_offset", "auto") != "auto":
            values["step_offset"] = self.natural("align", table, "step_offset", 'or "auto"')
        if "microbatches" in table:
            values["microbatches"] = self._microbatches(table["microbatches"])
        if "phases" in table:
            values["phases"] = self._phases(table["phases"])
        if "rename" in table:
            values["rename"] = self._rename(table["rename"])
        return Align(**values)

    def _loss_weight(self, value: Any, loss: str | None) -> str:
        if loss != "weighted":
            raise self.error("align", "loss_weight", 'goes with loss = "weighted" only')
        if not isinstance(value, str) or not (value == "samples" or value.startswith("batch")):
            problem = 'must be "samples" or a recorded batch field, as "batch[1]"'
            raise self.error("align", "loss_weight", problem)
        return value

    def _microbatches(self, value: Any) -> tuple[int, int]:
        if not isinstance(value, dict) or set(value) != {"reference", "target"}:
            raise self.error("align", "microbatches", "must be { reference = N, target = N }")
        counts = value["reference"], value["target"]
        if any(type(count) is not int or count < 1 for count in counts):
            raise self.error("align", "microbatches", "must hold whole numbers from 1")
        return counts

    def _phases(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise self.error("align", "phases", "must be a list of phases that is not empty")
        for phase in value:
            if phase not in PHASES:
                raise self.error(
                    "align", "phases", f"no phase {phase!r}; there are {listed(PHASES)}"
                )
        return tuple(phase for phase in PHASES if phase in value)

    def _rename(self, value: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or not all(isinstance(new, str) for new in value.values()):
            raise self.error("align", "rename", "must be a table of names")
        for old, new in value.items():
            if problem := rename_problem(old, new):
                raise self.error("align", "rename", problem)
        if problem := renames_problem(value):
            raise self.error("align", "rename", problem)
        return tuple(value.items())

    def _rule(self, number: int, table: Any) -> Rule:
        place = f"compare[{number}]"
        if not isinstance(table, dict):
            raise self.error(place, "", "must be a table")
        self.known(place, table, _KEYS["compare"])
        if not isinstance(table.get("site"), str) or not table["site"]:
            raise self.error(place, "site", 'needed: a glob over "phase:component:field"')
        values: dict[str, Any] = {"site": table["site"]}
        for key in _LIMITS:
            if key in table:
                values[key] = self.limit(place, table, key)
        if "ulp" in table:
            values["ulp"] = self.natural(place, table, "ulp")
        for key in ("symmetric", "equal_nan", "ignore"):
            values[key] = self.flag(place, table, key)
        if "tolerance" in table:
            values["noise"] = self._noise(place, table)
        rule = Rule(**values)
        if rule.ignore and (rule.elementwise or rule.rel_l2 is not None or rule.equal_nan):
            raise self.error(place, "ignore", "an ignored site cannot have limits too")
        if rule.equal_nan and rule.exact:
            # Exact but for the bits of a NaN: numbers that are equal, and no limit beside.
            rule = replace(rule, atol=0.0)
        if rule.symmetric and rule.rtol is None and rule.rel_l2 is None:
            raise self.error(place, "symmetric", "goes with rtol or rel_l2, which it is about")
        return rule

    def _noise(self, place: str, table: Mapping[str, Any]) -> float:
        """The factor in ``noise * 4``; ``noise`` alone is once."""
        found = re.fullmatch(r"noise(?:\s*\*\s*(\d+(?:\.\d*)?))?", str(table["tolerance"]).strip())
        if found is None:
            raise self.error(place, "tolerance", 'must be "noise * FACTOR", as "noise * 4"')
        for key in (*_LIMITS, "ulp", "ignore"):
            if key in table:
                raise self.error(place, "tolerance", f"does not go with {key}")
        factor = float(found[1] or 1)
        if not factor:
            raise self.error(
                place, "tolerance", "must be a factor above 0; leave it out to compare exactly"
            )
        return factor

    def _coverage(self, table: Mapping[str, Any]) -> Coverage:
        self.known("coverage", table, _KEYS["coverage"])
        words = {
            key: self.word("coverage", table, key, _COVERAGE_WORDS[key]) for key in _COVERAGE_WORDS
        }
        values: dict[str, Any] = {key: word for key, word in words.items() if word}
        if "policy" not in values:
            raise self.error("coverage", "policy", f"needed: {listed(_COVERAGE_WORDS['policy'])}")
        if "padding" in table:
            values["padding"] = self.natural("coverage", table, "padding")
        if "id" in table:
            values["id"] = str(table["id"])
        if "expected" in table:
            try:
                values["expected"] = expected_samples(table["expected"])
            except ValueError as error:
                raise self.error("coverage", "expected", str(error)) from None
        coverage = Coverage(**values)
        if found := coverage_problem(coverage):
            raise self.error("coverage", *found)
        return coverage


def expected_samples(value: Any) -> str | tuple[int | str, ...]:
    """The samples that a policy expects: ``range(START, STOP)`` as a text, or a list of IDs.

    Raises:
        ValueError: The value is neither.
    """
    if isinstance(value, str) and re.fullmatch(
        r"range\(\s*-?\d{1,40}\s*(,\s*-?\d{1,40}\s*){0,2}\)", value
    ):
        span_of(value)
        return value
    if isinstance(value, list) and all(type(item) in (int, str) for item in value):
        if len(set(value)) != len(value):
            raise ValueError("names a sample twice")
        return tuple(value)
    raise ValueError('must be "range(START, STOP)" or a list of IDs')


def coverage_problem(coverage: Coverage) -> tuple[str, str] | None:
    """The key of a coverage that does not go with the others, and why."""
    if (coverage.policy == "expected_padding") != (coverage.padding is not None):
        return "padding", 'goes with policy = "expected_padding", which needs it'
    if coverage.policy == "no_cross_rank_overlap" and coverage.expected is not None:
        return "expected", 'does not go with policy = "no_cross_rank_overlap"'
    if not re.match(r"sampler$|batch(\[|$)", coverage.id):
        return "id", 'must be "sampler" or a recorded field of the batch, such as "batch[row]"'
    return None


def renames_problem(names: Mapping[str, str]) -> str:
    """Two names of the reference that are to be one of the target; empty where there are none."""
    olds: dict[str, str] = {}
    for old, new in names.items():
        # Whatever a hole is called, it stands for any segment.
        shape = re.sub(r"{\w+}", "{}", new)
        if shape in olds:
            return f"both {olds[shape]} and {old} are to be {new}, which only one of them can be"
        olds[shape] = old
    return ""


def rename_problem(old: str, new: str) -> str:
    """What is wrong with a pair of names; empty where nothing is."""
    if not old or not new:
        return "an empty name; the root has no name to change"
    holes = set(re.findall(r"{(\w+)}", old))
    if missing := set(re.findall(r"{(\w+)}", new)) ^ holes:
        return f"{{{sorted(missing)[0]}}} stands on one side of {old!r} = {new!r} only"
    return ""
