"""Comparing two aligned steps: the first place that decides, in the order of a step."""

from dataclasses import dataclass, field

from traceparity.differ.candidates import Candidate, candidates, settled_blocks
from traceparity.differ.compare import Relation, Verdict, compare
from traceparity.differ.data_evidence import with_samples
from traceparity.differ.divergence import make_divergence
from traceparity.differ.observation import Observation
from traceparity.differ.relevance import Relevance
from traceparity.differ.result import Compared, Divergence
from traceparity.differ.seam import STATE_BLOCK, is_seam, seam_candidates
from traceparity.differ.step_pair import Side, StepPair
from traceparity.tracefmt.records import Phase

_EQUAL = Verdict(Relation.EQUAL)
_DIFFERENT = Verdict(Relation.DIFFERENT)


@dataclass(slots=True)
class StepReport:
    """What came out of two steps.

    Attributes:
        pair: The steps.
        compared: Counts.
        first: The first divergence.
        candidate: The place of it.
        identical: Whether nothing at all differed, not even what does not decide.
        phases: Phases of which anything was compared.
        undecided: Sites that could not be judged, at most a few.
        unmatched: Sites of one side only that the policy allows, at most a few.
    """

    pair: StepPair
    compared: Compared
    first: Divergence | None = None
    candidate: Candidate | None = None
    identical: bool = True
    phases: set[str] = field(default_factory=set)
    undecided: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)

    def add_before_batches(self, found: Divergence) -> None:
        """Add a divergence of the step as a whole: only its starting state comes before it."""
        if self.first is None or self.first.order >= found.order:
            self.first, self.candidate, self.identical = found, None, False


def compare_steps(pair: StepPair) -> StepReport:
    """Compare two steps block by block, until the first divergence."""
    report = StepReport(pair, Compared(steps=1, ignored=pair.reference.ignored))
    relevance = Relevance(pair)
    seam = is_seam(pair)
    settled = settled_blocks(pair)
    for block in pair.blocks:
        if seam and block == STATE_BLOCK:
            found = seam_candidates(pair)
        else:
            found = settled.get(block.number) or candidates(pair, block)
        report.compared.observations += found.compared
        report.identical &= not found.close
        if found.compared:
            report.phases.add(block.phase.label)
        if report.first is None:
            _judge_block(report, relevance, found.found)
    report.compared.observations += pair.reference.layout.explaining(report.phases)
    return report


def _judge_block(report: StepReport, relevance: Relevance, found: list[Candidate]) -> None:
    pair = report.pair
    for candidate in found:
        if _in_blind_spot(pair, candidate):
            report.identical = False
            report.compared.blind += 1
            continue
        if _cut_off(pair, candidate):
            report.identical = False
            continue
        if candidate.structural and not _is_judged(report, candidate):
            continue
        reference, target = candidate.observations(pair)
        verdict = _verdict(pair, candidate, reference, target)
        if verdict.relation is Relation.UNDECIDED:
            report.identical = False
            report.compared.undecided += 1
            report.undecided.append(str(pair.sites.sites[candidate.site]))
        elif verdict.relation is Relation.DIFFERENT:
            report.identical = False
            if relevance.decides(candidate, reference, target):
                divergence = make_divergence(pair, candidate, reference, target)
                report.first = with_samples(pair, candidate, divergence)
                report.candidate = candidate
                return


def _in_blind_spot(pair: StepPair, candidate: Candidate) -> bool:
    """Whether one side could not see a place: the inside of a compiled region, say."""
    phase, site = candidate.block.phase, pair.sites.sites[candidate.site]
    if phase in (Phase.FORWARD, Phase.BACKWARD):
        return any(side.blind(site.component) for side in _lacking(pair, candidate))
    # What comes of a gradient is seen after the update.
    return phase == Phase.GRADIENT and _unreadable(pair, candidate)


def _lacking(pair: StepPair, candidate: Candidate) -> list[Side]:
    """The sides that have no row at a candidate."""
    rows = candidate.reference_row, candidate.target_row
    sides = pair.reference_side, pair.target_side
    return [side for side, row in zip(sides, rows, strict=True) if row is None]


def _unreadable(pair: StepPair, candidate: Candidate) -> bool:
    """Whether a side says that its value was there and could not be read."""
    site = pair.sites.sites[candidate.site]
    sides = _lacking(pair, candidate)
    return any(side.unreadable(site.component, site.field) for side in sides)


def _cut_off(pair: StepPair, candidate: Candidate) -> bool:
    """Whether the row that would answer may have been lost with the end of a recording."""
    if candidate.block.phase == Phase.STATE and not candidate.structural:
        return False
    return (
        candidate.reference_row is None and pair.reference_side.partial(pair.reference_step)
    ) or (candidate.target_row is None and pair.target_side.partial(pair.target_step))


def _is_judged(report: StepReport, candidate: Candidate) -> bool:
    """Whether an observation of one side counts: not if the other side could not have it."""
    pair = report.pair
    report.identical = False
    if not candidate.known:
        return False
    if _unreadable(pair, candidate):
        report.compared.undecided += 1
        report.undecided.append(str(pair.sites.sites[candidate.site]))
        return False
    if pair.policy.align.unmatched == "allow":
        report.compared.unmatched += 1
        report.unmatched.append(str(pair.sites.sites[candidate.site]))
        return False
    return True


def _verdict(
    pair: StepPair,
    candidate: Candidate,
    reference: Observation | None,
    target: Observation | None,
) -> Verdict:
    if reference is None or target is None:
        return _DIFFERENT
    if pair.policy.align.device == "compare" and reference.device != target.device:
        return _DIFFERENT
    renames = pair.sites.renames
    if renames and reference.plain != target.plain:
        field_name = pair.sites.things[pair.sites.thing_of[candidate.site]][1]
        if renames.scalar(field_name, reference.plain) == target.plain:
            return _EQUAL
    return compare(
        pair.sites.rule(candidate.site),
        reference,
        target,
        same_digest_kind=pair.comparable(reference, target),
    )
