"""`fleetsim forecast`: the whole run of a job, to its last step."""

from __future__ import annotations

from fleetsim.cli.answer import answer
from fleetsim.cli.flags import Output
from fleetsim.forecast.ask import NUMBERS, Forecast
from fleetsim.forecast.ask import forecast as ask


def forecast(asked: Forecast, output: Output) -> None:
    """What the whole run takes: hours, GPU-hours, dollars and tokens to its last step, with ranges.

    Examples:
    fleetsim forecast job.yaml --steps 2000
    fleetsim forecast job.yaml --steps 2000 --schedule len=0:1500,500:4000 --schedule batch=0:256,1000:512
    fleetsim forecast job.yaml --steps 2000 --schedule plan.csv --resize --html forecast.html
    fleetsim forecast job.yaml --steps 2000 --set trainer.failures.mtbf_s=86400 --fail-if "usd>5000"
    fleetsim forecast --run train.log --steps 2000 --backtest 0.2

    A few long runs are simulated at points of the schedule; straight lines lie between them.
    """
    answer(ask, asked, output, only=NUMBERS)
