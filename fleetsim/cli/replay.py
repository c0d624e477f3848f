"""`fleetsim replay`: history in; diagnosis, back-test and what-if out."""

from __future__ import annotations

from fleetsim.cli.replay_files import PlanFiles, ReplayOutput
from fleetsim.replay.ask import Replay, ask
from fleetsim.replay.history_fields import AccessFields


def replay(asked: Replay, output: ReplayOutput, files: PlanFiles, access: AccessFields) -> None:
    """What did the fleet do, which side starves, and what would another fleet have done? From its own metrics.

    Examples:

    [bold]fleetsim replay --prometheus http://localhost:9090[/bold]

    [bold]fleetsim replay --prometheus http://localhost:9090 --start -1d --save day.parquet[/bold]

    [bold]fleetsim replay --from day.parquet --scenario job.yaml --set fleet.instances=10[/bold]

    [bold]fleetsim replay --from day.parquet --recommend --plan-out plan.json --patch patch.yaml[/bold]

    [bold]fleetsim replay --prometheus http://localhost:9090 --start -2h --verify plan.json[/bold]

    [bold]fleetsim replay --from day.parquet --sweep fleet.instances=6:16:2 --html day.html[/bold]

    Reads only. Nothing is written but what --save, --html, --plan-out, --patch and --job-out name.
    """
    from fleetsim.cli.output import show_result, stop_at, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.cli.replay_files import (
        checked,
        stop_if_missed,
        stop_if_no_job,
        stop_if_unverified,
        stop_if_withheld,
        with_file,
        with_job,
        write_plan,
    )

    asked, places = checked(asked, output, files, access)
    with progress("starting", aloud=True) as watch:
        result = with_file(ask(asked, watch), files.patch)
    result = with_job(result, files.job_out)
    show_result(result, output.json_, output.explain)
    if places.page is not None:
        write_page(places.page, result.page())
    write_plan(files, result.answers, asked.history.ready())
    stop_if_no_job(result, files.job_out)
    stop_if_unverified(result.answers)
    stop_if_withheld(files, result.answers)
    stop_if_missed(result.answers)
    stop_at(places.gate.tripped(result.numbers()))
