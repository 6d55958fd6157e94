"""What classes of nn do whose bodies are a line or two, with the shapes of what goes in and comes out.

N is the batch and may be missing in most, C are channels, {s} the spatial axes of the class, {o} those of its result; "..." is any
axes. Of a name with # there is one class for 1, 2 and 3 spatial axes, or for those after it.
"""

_TEXT = """
Conv#d: The convolution with weight (out_channels, in_channels / groups, kernel): (N, in_channels, {s}) to (N, out_channels, {o}).
ConvTranspose#d: The transposed convolution, whose stride upsamples: (N, in_channels, {s}) to (N, out_channels, {o}).
MaxPool#d: The largest value of each window: (N, C, {s}) to (N, C, {o}); with return_indices also their places, of that shape.
MaxUnpool#d: Puts values to the places that MaxPool#d's indices name, zeros elsewhere: (N, C, {s}) to (N, C, {o}).
AvgPool#d: The mean of each window: (N, C, {s}) to (N, C, {o}).
LPPool#d: The p-norm of each window: (N, C, {s}) to (N, C, {o}).
FractionalMaxPool#d 2 3: The largest values of windows at random steps: (N, C, {s}) to (N, C, {o}).
AdaptiveAvgPool#d: Means of as many windows as output_size says: (N, C, {s}) to (N, C, {o}).
AdaptiveMaxPool#d: The largest values of as many windows as output_size says: (N, C, {s}) to (N, C, {o}).
BatchNorm#d: Normalizes each channel by its mean and variance over the batch: (N, C, {s}) to the same shape.
InstanceNorm#d: Normalizes each channel of each sample: (N, C, {s}) to the same shape.
ConstantPad#d: Pads the spatial axes with a value: (N, C, {s}) to (N, C, {o}).
ZeroPad#d: Pads the spatial axes with zeros: (N, C, {s}) to (N, C, {o}).
ReflectionPad#d: Pads the spatial axes with their mirror image: (N, C, {s}) to (N, C, {o}).
ReplicationPad#d: Pads the spatial axes with their first and last values: (N, C, {s}) to (N, C, {o}).
CircularPad#d: Pads the spatial axes with their other end: (N, C, {s}) to (N, C, {o}).
Dropout#d: Sets whole channels to 0 with probability p in training, and scales the others: (N, C, {s}) to the same shape.
LazyConv#d: Conv#d whose in_channels are those of the first input: (N, C, {s}) to (N, out_channels, {o}).
LazyConvTranspose#d: ConvTranspose#d whose in_channels are those of the first input: (N, C, {s}) to (N, out_channels, {o}).
LazyBatchNorm#d: BatchNorm#d whose num_features are those of the first input: (N, C, {s}) to the same shape.
LazyInstanceNorm#d: InstanceNorm#d whose num_features are those of the first input: (N, C, {s}) to the same shape.
LazyLinear: Linear whose in_features are those of the first input: (..., in_features) to (..., out_features).
Unfold: The windows of images as columns: (N, C, H, W) to (N, C kernel_size, windows).
Fold: Adds windows up to images: (N, C kernel_size, windows) to (N, C, H, W), of output_size.
PixelShuffle: Channels become pixels: (..., C r r, H, W) to (..., C, H r, W r), r = upscale_factor.
PixelUnshuffle: Pixels become channels: (..., C, H r, W r) to (..., C r r, H, W), r = downscale_factor.
ChannelShuffle: Interleaves the channels of the groups: (N, C, ...) to the same shape.
Upsample: Resizes to size, or by scale_factor: (N, C, ...) to (N, C, ...).
UpsamplingNearest2d: Resizes by the nearest pixels: (N, C, H, W) to (N, C, H_out, W_out).
UpsamplingBilinear2d: Resizes by straight lines between pixels, corners aligned: (N, C, H, W) to (N, C, H_out, W_out).
EmbeddingBag: The mean, sum or maximum of the rows of each bag: indices (B, n), or (n,) with offsets (B,), to (B, embedding_dim).
LayerNorm: Normalizes over the last axes, normalized_shape: (..., *normalized_shape) to the same shape.
RMSNorm: Divides by the root of the mean square over the last axes: (..., *normalized_shape) to the same shape.
GroupNorm: Normalizes each of num_groups groups of channels: (N, C, ...) to the same shape.
LocalResponseNorm: Divides by a power of the mean square of size neighbouring channels: (N, C, ...) to the same shape.
Dropout: Sets elements to 0 with probability p in training, and scales the others: (...) to (...).
AlphaDropout: Dropout that keeps the mean and the variance of what SELU gives: (...) to (...).
FeatureAlphaDropout: AlphaDropout of whole channels: (N, C, ...) to the same shape.
ReLU: max(x, 0): (...) to (...).
ReLU6: x limited to 0 and 6: (...) to (...).
LeakyReLU: x, times negative_slope where it is negative: (...) to (...).
PReLU: x, times the channel's weight where it is negative: (N, C, ...) to the same shape.
RReLU: x, times a random slope from lower to upper where it is negative: (...) to (...).
ELU: x, and alpha (exp(x) - 1) where it is negative: (...) to (...).
CELU: x, and alpha (exp(x / alpha) - 1) where it is negative: (...) to (...).
SELU: ELU with the scale and alpha of self-normalizing networks: (...) to (...).
GELU: x times the normal distribution's cdf at x: (...) to (...).
GLU: The first half of an axis times the sigmoid of the second: (..., 2 n, ...) to (..., n, ...).
SiLU: x sigmoid(x): (...) to (...).
Mish: x tanh(softplus(x)): (...) to (...).
Sigmoid: 1 / (1 + exp(-x)): (...) to (...).
LogSigmoid: log(sigmoid(x)): (...) to (...).
Hardsigmoid: x / 6 + 1 / 2 limited to 0 and 1: (...) to (...).
Hardswish: x hardsigmoid(x): (...) to (...).
Tanh: tanh(x): (...) to (...).
Tanhshrink: x - tanh(x): (...) to (...).
Hardtanh: x limited to min_val and max_val: (...) to (...).
Hardshrink: x, and 0 from -lambd to lambd: (...) to (...).
Softshrink: x less lambd towards 0, and 0 from -lambd to lambd: (...) to (...).
Softplus: log(1 + exp(beta x)) / beta, and x above threshold: (...) to (...).
Softsign: x / (1 + |x|): (...) to (...).
Threshold: x above threshold, else value: (...) to (...).
Softmax: exp(x) divided by its sum along dim: (..., n, ...) to the same shape.
Softmax2d: Softmax over the channels of each pixel: (N, C, H, W) to the same shape.
Softmin: Softmax of -x: (..., n, ...) to the same shape.
LogSoftmax: The logarithm of Softmax: (..., n, ...) to the same shape.
MSELoss: (input - target)^2: (...) and (...) to the mean (), or with reduction="none" (...).
L1Loss: |input - target|: (...) and (...) to the mean (), or with reduction="none" (...).
SmoothL1Loss: The square below a distance of beta, the distance above: (...) and (...) to () or (...).
HuberLoss: SmoothL1Loss times delta, which is its beta: (...) and (...) to () or (...).
SoftMarginLoss: log(1 + exp(-target input)), targets -1 or 1: (...) and (...) to () or (...).
BCELoss: The cross-entropy of probabilities and targets from 0 to 1: (...) and (...) to () or (...).
BCEWithLogitsLoss: BCELoss of sigmoid(input): (...) and (...) to () or (...).
KLDivLoss: target (log(target) - input) of log-probabilities: (...) and (...) to () or (...).
PoissonNLLLoss: The negative log-likelihood of counts at rates, or their logarithms: (...) and (...) to () or (...).
GaussianNLLLoss: The negative log-likelihood of normal numbers: input, target and var (...) to () or (...).
HingeEmbeddingLoss: input where the target is 1, max(0, margin - input) where it is -1: (...) and (...) to () or (...).
NLLLoss: -input at the target's class: log-probabilities (N, C, ...) and classes (N, ...) to () or (N, ...).
NLLLoss2d: NLLLoss of images: (N, C, H, W) and (N, H, W) to () or (N, H, W).
CrossEntropyLoss: NLLLoss of log_softmax(input): logits (N, C, ...) and classes (N, ...), or probabilities, to () or (N, ...).
MultiMarginLoss: The mean over other classes of max(0, margin - x[target] + x)^p: (N, C) and (N,) to () or (N,).
MultiLabelMarginLoss: MultiMarginLoss of several classes, a list that ends at -1: (N, C) and (N, C) to () or (N,).
MultiLabelSoftMarginLoss: The mean over classes of BCEWithLogitsLoss: (N, C) and (N, C) to () or (N,).
CosineEmbeddingLoss: 1 - cosine if the target is 1, max(0, cosine - margin) if -1: (N, n), (N, n) and (N,) to () or (N,).
MarginRankingLoss: max(0, -target (input1 - input2) + margin): (N,), (N,) and (N,) to () or (N,).
TripletMarginLoss: max(0, |anchor - positive| - |anchor - negative| + margin): three of (N, n) to () or (N,).
TripletMarginWithDistanceLoss: TripletMarginLoss with a distance_function: three of (N, ...) to () or (N,).
CTCLoss: The negative log-likelihood of targets (N, S) over all alignments to log-probabilities (T, N, C): () or (N,).
CosineSimilarity: The cosine of the angle between vectors along dim, of size n: (..., n, ...) twice to that without n.
PairwiseDistance: The p-norm of differences along the last axis: (..., n) twice to (...).
RNN: h' = tanh(W x + U h + b): (T, N, input_size) and hx (layers, N, hidden_size) to (output (T, N, hidden_size), the last h).
GRU: Gated recurrent units: (T, N, input_size) and hx (layers, N, hidden_size) to (output (T, N, hidden_size), the last h).
LSTM: Long short-term memory: (T, N, input_size), hx = (h, c) of (layers, N, hidden_size), to (output (T, N, hidden_size), (h, c)).
RNNCellBase: The base of cells: one step of one recurrent layer, (N, input_size) and (N, hidden_size) to (N, hidden_size).
RNNCell: One step of RNN: (N, input_size) and hx (N, hidden_size) to (N, hidden_size).
GRUCell: One step of GRU: (N, input_size) and hx (N, hidden_size) to (N, hidden_size).
LSTMCell: One step of LSTM: (N, input_size) and (h, c) of (N, hidden_size) to the next (h, c).
MultiheadAttention: query (L, N, E), key and value (S, N, E), with batch_first (N, L, E), to (output like query, weights (N, L, S)).
TransformerEncoderLayer: Self-attention and a feed-forward network: (S, N, d_model) to the same shape.
TransformerDecoderLayer: Self-attention, attention to memory (S, N, d_model), feed-forward: (T, N, d_model) to the same shape.
TransformerEncoder: num_layers copies of a layer, then norm: (S, N, d_model) to the same shape.
TransformerDecoder: num_layers copies of a layer, each with memory (S, N, d_model), then norm: (T, N, d_model) to the same shape.
Transformer: An encoder of src (S, N, d_model) and a decoder of tgt (T, N, d_model) to (T, N, d_model).
UninitializedParameter: A parameter of a lazy module before its first call, without a shape.
UninitializedBuffer: A buffer of a lazy module before its first call, without a shape.
"""
_SPATIAL = {"1": "L", "2": "H, W", "3": "D, H, W"}


def add_docs(classes):
    """Writes the docstrings of {name: class}."""
    for line in _TEXT.strip().splitlines():
        names, _, text = line.partition(": ")
        name, *counts = names.split()
        for n in (counts or _SPATIAL) if "#" in name else "0":
            axes = _SPATIAL.get(n, "")
            out = ", ".join(f"{axis}_out" for axis in axes.split(", "))
            classes[name.replace("#", n)].__doc__ = text.replace("#", n).replace("{s}", axes).replace("{o}", out)
