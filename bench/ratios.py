"""What `make bench` computes from times measured in turns: the ratio of each pair, and how sure its median is."""
import math


def median(values):
    ordered = sorted(values)
    n = len(ordered)
    return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2


def interval(values, wanted=0.9):
    """The narrowest interval between two order statistics, as far from both ends, that holds the median of what the
    values are drawn from with a chance of at least `wanted`, whatever their distribution: (low, high, chance). None:
    there are too few values."""
    ordered, n = sorted(values), len(values)
    found, below = None, 0.0  # the chance that fewer than k + 1 of n lie below the median
    for k in range((n + 1) // 2):
        below += math.comb(n, k) / 2**n
        if 1 - 2 * below < wanted:
            break
        found = (ordered[k], ordered[n - 1 - k], 1 - 2 * below)
    return found


def compare(ours, theirs):
    """How many times as fast ours is, of the times of n turns each: above 1, ours is faster."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} times of ours and {len(theirs)} of theirs are no pairs")
    pairs = [b / a for a, b in zip(ours, theirs)]
    held = interval(pairs)
    low, high, chance = held or (None, None, None)
    return {"ratio": median(pairs), "low": low, "high": high, "chance": chance, "pairs": len(pairs)}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))
