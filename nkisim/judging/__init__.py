"""The judge of kernels, for courses, for CI and for searches that write kernels themselves."""

from nkisim.judging.judge import judge, judge_all
from nkisim.judging.task import Limits, Task, read
from nkisim.judging.verdict import LaunchVerdict, Verdict

__all__ = ["LaunchVerdict", "Limits", "Task", "Verdict", "judge", "judge_all", "read"]
