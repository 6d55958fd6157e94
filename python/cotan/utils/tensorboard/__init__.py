"""torch.utils.tensorboard: SummaryWriter writes event files that TensorBoard shows."""
import datetime
import io
import os
import socket
import struct
import time
import warnings
import wave
import zlib

from ... import _core
from ..._core import Tensor, ops
from ..._searching import searchsorted
from .events import EventFile, field, float_field, plugin, summary_of

__all__ = ["FileWriter", "SummaryWriter"]
FileWriter = EventFile
_STRING = 7  # TensorProto's dtype


def _tensor(x):
    """Returns a tensor of numbers, a tensor, or an array of another library."""
    return x.detach() if isinstance(x, Tensor) else _core.asarray(x)


def _png(image):
    """Encodes (H, W, C) uint8, with 1, 3 or 4 channels."""
    height, width, channels = image.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    data, row = bytes(memoryview(image.numpy()).cast("B")), width * channels
    lines = b"".join(b"\0" + data[i * row:(i + 1) * row] for i in range(height))

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def _image_rows(image, formats):
    """Returns (H, W, C) uint8 of an image, or of a batch of them as a grid of up to 8 columns."""
    x, formats = _tensor(image), formats.upper()
    if len(formats) != x.ndim or set(formats) - set("NCHW") or len(set(formats)) != len(formats):
        raise ValueError(f"add_image: dataformats is {formats!r}, the tensor has {x.ndim} axes")
    if x.dtype != _core.uint8:
        x = ops.cast(x, _core.float32) * 255
        x = ops.cast(ops.minimum(ops.maximum(x, _core.full((), 0.0)), _core.full((), 255.0)), _core.uint8)
    x = ops.permute(x, [formats.index(axis) for axis in "NHWC" if axis in formats])
    x = x if "C" in formats else x[..., None]
    if "N" in formats:
        n, height, width, channels = x.shape
        columns = min(n, 8)
        rows = -(-n // columns)
        x = ops.concat([x, _core.full((rows * columns - n, height, width, channels), 0, _core.uint8)], 0)
        x = ops.permute(x.reshape(rows, columns, height, width, channels), [0, 2, 1, 3, 4]).reshape(rows * height, columns * width,
                                                                                                   channels)
    return x if x.shape[2] in (1, 3, 4) else ops.concat([x[..., :1]] * 3, 2)


def _histogram_edges(values, bins):
    """Returns the limits of bins. "tensorflow": they grow by a tenth, from 1e-12 to 1e20, on both sides of 0."""
    if bins == "tensorflow":
        limits, limit = [], 1e-12
        while limit < 1e20:
            limits.append(limit)
            limit *= 1.1
        return [-one for one in reversed(limits)] + [0] + limits
    if isinstance(bins, str):
        import numpy
        return numpy.histogram_bin_edges(values.numpy(), bins).tolist()
    if isinstance(bins, int):
        low, high = values.min().item(), values.max().item()
        low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
        return [low + (high - low) * i / bins for i in range(bins + 1)]
    return [float(one) for one in bins]


def _histogram(values, bins, most):
    values = ops.cast(_tensor(values).reshape(-1), _core.float64)
    if not values.numel():
        raise ValueError("The input has no element.")
    edges = _histogram_edges(values, bins)
    places = searchsorted(_core.asarray(edges, dtype=_core.float64), values, right=True)
    counts = [0.0] * (len(edges) - 1)
    for place, value in zip(places.tolist(), values.tolist()):
        if 0 < place < len(edges):
            counts[place - 1] += 1
        elif place == len(edges) and value == edges[-1]:  # the last bin has its upper limit
            counts[-1] += 1
    if most is not None and len(counts) > most:
        step = len(counts) // most
        counts = [sum(counts[i:i + step]) for i in range(0, len(counts), step)]
        edges = edges[::step] if (len(edges) - 1) % step == 0 else edges[::step] + edges[-1:]
    used = [i for i, count in enumerate(counts) if count] or [0]
    start, end = used[0], used[-1] + 1
    # TensorBoard has upper limits alone: an empty bin in front has the lowest one.
    return _histogram_message(values.min().item(), values.max().item(), float(values.numel()), ops.sum(values).item(),
                              ops.sum(values * values).item(), edges[start:end + 1], [0.0] + counts[start:end])


def _histogram_message(low, high, num, total, squares, limits, counts):
    numbers = [field(i, float(value)) for i, value in enumerate((low, high, num, total, squares), 1)]
    return field(5, b"".join(numbers) + field(6, [float(one) for one in limits]) + field(7, [float(one) for one in counts]))


def _hparam_value(value):
    """Returns google.protobuf.Value and the number of its type in HParamInfo."""
    if isinstance(value, bool):
        return field(4, int(value)), 2
    if isinstance(value, str):
        return field(3, value), 1
    if isinstance(value, (int, float)) or isinstance(value, Tensor) and value.numel() == 1:
        return field(2, float(value)), 3
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


def _hparams_summaries(hparams, metrics, domains):
    infos, values = b"", b""
    for name, value in hparams.items():
        if value is None:
            continue
        message, kind = _hparam_value(value)
        domain = field(5, b"".join(field(1, _hparam_value(one)[0]) for one in domains[name])) if name in domains else b""
        infos += field(4, field(1, name) + field(4, kind) + domain)
        values += field(1, field(1, name) + field(2, message))
    for name in metrics:
        infos += field(5, field(1, field(2, name)))
    for tag, content in (("experiment", field(2, infos)), ("session_start_info", field(3, values)),
                         ("session_end_info", field(4, field(1, 1)))):
        yield summary_of(f"_hparams_/{tag}", plugin("hparams", content))


class SummaryWriter:
    """Writes scalars, histograms, images, text and settings of runs to event files of a folder, by default
    runs/DATE_HOST."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        stamp = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = os.fspath(log_dir or os.path.join("runs", f"{stamp}_{socket.gethostname()}{comment}"))
        self.purge_step, self._options = purge_step, (filename_suffix, max_queue, flush_secs)
        self._file, self.all_writers = None, {}
        self._of_folder(self.log_dir)
        if purge_step is not None:  # a session that starts at this step: later events of older files are dropped
            self._file.put(field(7, field(1, 1)), purge_step)

    def _of_folder(self, folder):
        """Returns the file of a folder, which is opened again after close."""
        if folder not in self.all_writers:
            self.all_writers[folder] = EventFile(folder, *self._options)
        if folder == self.log_dir:
            self._file = self.all_writers[folder]
        return self.all_writers[folder]

    def _add(self, content, step, walltime, folder=None):
        self._of_folder(folder or self.log_dir).put(field(5, content), step, walltime)

    def get_logdir(self):
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """Writes a number in float32; new_style and double_precision change nothing."""
        self._add(summary_of(tag, float_field(2, float(scalar_value))), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Writes several numbers of one diagram, each to a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            self._add(summary_of(main_tag, float_field(2, float(value))), global_step, walltime, folder)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        self._add(summary_of(tag, _histogram(values, bins, max_bins)), global_step, walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None,
                          walltime=None):
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summary_of(tag, _histogram_message(min, max, num, sum, sum_squares, bucket_limits, bucket_counts)), global_step,
                  walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Writes an image: floats from 0 to 1, or uint8."""
        image = _image_rows(img_tensor, dataformats)
        height, width, channels = image.shape
        self._add(summary_of(tag, field(4, field(1, height) + field(2, width) + field(3, channels) + field(4, _png(image)))),
                  global_step,
                  walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Writes a figure of matplotlib, or a list of them."""
        import numpy
        images = []
        for one in figure if isinstance(figure, list) else [figure]:
            one.canvas.draw()
            images.append(numpy.asarray(one.canvas.buffer_rgba())[..., :3].copy())
            if close:
                import matplotlib.pyplot
                matplotlib.pyplot.close(one)
        self.add_image(tag, numpy.stack(images), global_step, walltime, "NHWC")

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """Writes sound: one channel of floats from -1 to 1."""
        samples = _tensor(snd_tensor).reshape(-1)
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(sample_rate)
            file.writeframes(struct.pack(f"<{samples.numel()}h", *(int(max(-1, min(1, s)) * 32767) for s in samples.tolist())))
        head = float_field(1, sample_rate) + field(2, 1) + field(3, samples.numel())
        self._add(summary_of(tag, field(6, head + field(4, out.getvalue()) + field(5, "audio/wav"))), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        tensor = field(1, _STRING) + field(2, field(2, field(1, 1))) + field(8, text_string)
        self._add(summary_of(f"{tag}/text_summary", plugin("text"), field(8, tensor)), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """Writes settings of a run and its results, to a folder of its own."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as writer:
            for content in _hparams_summaries(hparam_dict, metric_dict, hparam_domain_discrete or {}):
                writer._add(content, None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_custom_scalars(self, layout):
        """Groups scalars into diagrams: {category: {title: ["Multiline" or "Margin", [tag, …]]}}."""
        categories = b""
        for category, charts in layout.items():
            inside = field(1, category)
            for title, (kind, tags) in charts.items():
                margin = kind == "Margin"
                shown = field(1, b"".join(map(field, (1, 2, 3), tags))) if margin else b"".join(field(1, tag) for tag in tags)
                inside += field(2, field(1, title) + field(3 if margin else 2, shown))
            categories += field(2, inside)
        tensor = field(1, _STRING) + field(2, b"") + field(8, categories)
        self._add(summary_of("custom_scalars__config__", plugin("custom_scalars"), field(8, tensor)), None, None)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """Writes nothing, with a warning: there is no graph of modules."""
        warnings.warn("add_graph: there is no graph of modules to write\n  hint: cotan.profiler shows where time goes",
                      stacklevel=2)

    def _refuse(name):
        def method(self, *args, **options):
            raise NotImplementedError(f"SummaryWriter.{name}: this kind of summary is not written")
        return method

    add_embedding, add_video, add_mesh, add_pr_curve, add_pr_curve_raw, add_onnx_graph, add_tensor = map(
        _refuse, "add_embedding add_video add_mesh add_pr_curve add_pr_curve_raw add_onnx_graph add_tensor".split())

    def flush(self):
        for writer in self.all_writers.values():
            writer.flush()

    def close(self):
        for writer in self.all_writers.values():
            writer.close()
        self.all_writers = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
