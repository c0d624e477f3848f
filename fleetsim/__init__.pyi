# What `fleetsim.__getattr__` finds, for type checkers and editors.

from fleetsim.api import CompareResult as CompareResult
from fleetsim.api import Estimate as Estimate
from fleetsim.api import FleetsimError as FleetsimError
from fleetsim.api import ForecastResult as ForecastResult
from fleetsim.api import InfeasibleError as InfeasibleError
from fleetsim.api import InputError as InputError
from fleetsim.api import Interrupted as Interrupted
from fleetsim.api import Job as Job
from fleetsim.api import Metrics as Metrics
from fleetsim.api import OutsideError as OutsideError
from fleetsim.api import PackResult as PackResult
from fleetsim.api import PlanResult as PlanResult
from fleetsim.api import ReplayResult as ReplayResult
from fleetsim.api import SimulateResult as SimulateResult
from fleetsim.api import SizeResult as SizeResult
from fleetsim.api import SplitResult as SplitResult
from fleetsim.api import StuckError as StuckError
from fleetsim.api import SweepResult as SweepResult
from fleetsim.api import calibrate as calibrate
from fleetsim.api import compare as compare
from fleetsim.api import estimate_profile as estimate_profile
from fleetsim.api import load as load
from fleetsim.api import pack as pack
from fleetsim.api import plan as plan
from fleetsim.api import profile as profile
from fleetsim.api import profiles as profiles
from fleetsim.api import read_config as read_config
from fleetsim.api import replay as replay
from fleetsim.api import scenarios as scenarios
from fleetsim.api import sweep as sweep
from fleetsim.api import validate as validate
from fleetsim.api import watch as watch

__version__: str
