"""What can be asked of `compare`: the two sides, what is simulated, which windows, what is of interest, a condition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fleetsim.compare.inputs import GivenSide
from fleetsim.job.fields import CountedFlags
from fleetsim.job.settings import RUN, SIMULATED, Argument, Lends, Option
from fleetsim.replay.history_fields import SOURCE, AccessFields


@dataclass(frozen=True, kw_only=True)
class Compare:
    """What changed between A and B, by how much, and is it more than luck?

    job: what flags say of both jobs. given: A and B where they are no texts; one where both are of one history. labels:
    what the two are called. counts: whether every query of a server is told.
    """

    a: Annotated[str | None, Argument("A scenario, a result (--json of simulate), or history.", "A")] = None
    b: Annotated[str | None, Argument("The other; A again if --set-b is given.", "B")] = None
    set_: Annotated[list[str] | None, Option("Of both scenarios. Repeatable.", SIMULATED, metavar="KEY=VALUE")] = None
    set_a: Annotated[list[str] | None, Option("Of A alone.", SIMULATED, metavar="KEY=VALUE")] = None
    set_b: Annotated[list[str] | None, Option("Of B alone.", SIMULATED, metavar="KEY=VALUE")] = None
    job: Annotated[CountedFlags, Lends(CountedFlags)] = field(default_factory=CountedFlags)
    steps: Annotated[int | None, Option("Optimizer steps of each run.", SIMULATED)] = None
    seed: Annotated[int | None, Option("Random seed of both: luck then cancels out.", SIMULATED)] = None
    replications: Annotated[int | None, Option("Runs of each; 10 if not given.", SIMULATED)] = None
    prometheus: Annotated[
        str | None, Option("Prometheus, Thanos, Mimir or VictoriaMetrics.", SOURCE, metavar="URL")
    ] = None
    window_a: Annotated[str | None, Option("Window of A: -6h..-3h.", SOURCE, flag="--a", metavar="START..END")] = None
    window_b: Annotated[str | None, Option("Window of B: -3h..now.", SOURCE, flag="--b", metavar="START..END")] = None
    selector: Annotated[str, Option("""Which engines: 'job="rollout"'.""", SOURCE, metavar="LABELS")] = ""
    selector_a: Annotated[str, Option("Of A alone, beside --selector.", SOURCE, metavar="LABELS")] = ""
    selector_b: Annotated[str, Option("Of B alone.", SOURCE, metavar="LABELS")] = ""
    step: Annotated[str, Option("Grid, as 15s; auto = the scrape interval.", SOURCE, metavar="SPAN")] = "auto"
    map_: Annotated[list[str] | None, Option("A metric of yours. Repeatable.", SOURCE, metavar="SIGNAL=METRIC")] = None
    framework: Annotated[str | None, Option("Whose run logs they are (else: found out).", SOURCE)] = None
    metric: Annotated[list[str] | None, Option("Only this one. Repeatable.", RUN, metavar="NAME")] = None
    min_change: Annotated[float, Option("Smallest change of interest; 0.01 = 1 %.", RUN)] = 0.01
    access: Annotated[AccessFields, Lends(AccessFields)] = field(default_factory=AccessFields)
    fail_if: Annotated[
        list[str] | None,
        Option('Exit 10: regression, "ratio.step_s>1.05".', RUN, metavar="CONDITION", after="json_"),
    ] = None
    given: tuple[GivenSide, ...] = ()
    labels: tuple[str, str] | None = None
    counts: bool = False

    def label(self, where: str) -> str:
        """What somebody called this side; "" where nobody did."""
        return "" if self.labels is None else self.labels["AB".index(where)]
