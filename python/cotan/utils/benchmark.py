"""torch.utils.benchmark.Timer: how long a statement takes; what it records is computed in each run."""
import statistics
import timeit

from .. import _core

timer = timeit.default_timer


class Measurement:
    """Times of blocks of runs, in seconds."""

    def __init__(self, number_per_run, raw_times, stmt, label=None, sub_label=None, description=None, num_threads=1):
        self.number_per_run, self.raw_times, self.stmt = number_per_run, raw_times, stmt
        self.label, self.sub_label, self.description, self.num_threads = label, sub_label, description, num_threads

    @property
    def times(self):
        return [one / self.number_per_run for one in self.raw_times]

    @property
    def mean(self):
        return statistics.fmean(self.times)

    @property
    def median(self):
        return statistics.median(self.times)

    @property
    def iqr(self):
        """The distance of the quartiles."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def __repr__(self):
        factor, unit = next((pair for pair in ((1, "s"), (1e3, "ms"), (1e6, "us")) if self.median * pair[0] >= 1), (1e9, "ns"))
        head = ": ".join(filter(None, (self.label, self.sub_label, self.description))) or self.stmt
        return (f"<{__name__}.Measurement object>\n{head}\n  Median: {self.median * factor:.2f} {unit}\n"
                f"  IQR:    {self.iqr * factor:.2f} {unit}\n  {len(self.times)} measurements, "
                f"{self.number_per_run} runs per measurement")


class Timer:
    """Times `stmt`, after `setup` has run once, with these globals."""

    def __init__(self, stmt="pass", setup="pass", global_setup="", timer=timer, globals=None, label=None, sub_label=None,
                 description=None, env=None, num_threads=1, language="python"):
        if str(language).lower() not in ("python", "py", "language.python"):
            raise NotImplementedError(f"Timer: language {language} is asked for, statements are of Python")
        self._labels = (label, sub_label, description, num_threads)
        self._stmt, names = stmt, dict(globals or {}, __cotan_eval=_core.eval)
        self._timer = timeit.Timer(f"{stmt}\n__cotan_eval()", setup, timer, names)

    def timeit(self, number=1000000):
        """Runs the statement `number` times, after 1 % of them."""
        self._timer.timeit(max(number // 100, 2))
        return Measurement(number, [self._timer.timeit(number)], self._stmt, *self._labels)

    def _block(self, seconds):
        """Returns a number of runs that take about this long."""
        number = 1
        while self._timer.timeit(number) < seconds and number < 10**9:
            number *= 10
        return number

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Runs blocks of runs until they took min_run_time seconds."""
        number, times = self._block(min_run_time / 1000), []
        while sum(times) < min_run_time or len(times) < 2:
            times.append(self._timer.timeit(number))
            if callback:
                callback(number, times[-1])
        return Measurement(number, times, self._stmt, *self._labels)

    adaptive_autorange = blocked_autorange
