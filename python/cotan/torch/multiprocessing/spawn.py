"""Runs a function in several processes."""
import multiprocessing
import multiprocessing.connection
import pickle
import traceback


class ProcessException(Exception):
    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A process raised an exception."""


class ProcessExitedException(ProcessException):
    """A process ended with a status other than 0."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(function, number, args, errors):
    try:
        function(number, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send_bytes(pickle.dumps(traceback.format_exc()))
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that spawn(join=False) has started."""

    def __init__(self, processes, errors):
        self.processes, self._errors = processes, errors

    def pids(self):
        return [process.pid for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """True if all processes have ended; raises the error of one that failed, and ends the others."""
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        if running:  # waiting for none would not end
            multiprocessing.connection.wait(running, timeout)
        failed = [i for i, process in enumerate(self.processes) if process.exitcode]
        if not failed:
            return all(process.exitcode == 0 for process in self.processes)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        at = failed[0]
        process = self.processes[at]
        if self._errors[at].poll():
            text = pickle.loads(self._errors[at].recv_bytes())
            raise ProcessRaisedException(f"\n\n-- Process {at} terminated with the following error:\n{text}", at, process.pid)
        raise ProcessExitedException(f"process {at} terminated with exit code {process.exitcode}", at, process.pid,
                                     process.exitcode)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Starts fn(i, *args) in nprocs processes; waits for them unless join is False."""
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for number in range(nprocs):
        receiver, sender = context.Pipe(False)
        process = context.Process(target=_run, args=(fn, number, args, sender), daemon=daemon)
        process.start()
        sender.close()
        processes.append(process)
        errors.append(receiver)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs fn(i, *args) in nprocs new processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
