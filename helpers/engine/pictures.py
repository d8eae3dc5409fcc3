"""Whether two pictures show the same, although another machine drew them; which lines of a picture hide something."""

import io

import numpy as np
from PIL import Image, UnidentifiedImageError
from scipy.ndimage import maximum_filter, minimum_filter

COLOUR_TOLERANCE = 8  # of 255
NEAR = 0.01  # from the middle of a node to an edge that passes behind it, as a share of the picture
MANY_NODES = 1000  # a picture of more shows no single edge


def looks_alike(old, new):
    """Whether two pictures, as the bytes of PNG files, show the same.

    A pixel may have any colour that the other picture has within one pixel of it, give or take 8 of 255. On another
    machine a letter may snap to the next pixel and the edge of a line may be rounded differently: such pictures are
    alike. Anything that moves by two pixels (0.3 mm in print), appears, vanishes or visibly changes colour is noticed.
    """
    if old == new:
        return True
    try:
        a, b = _pixels(old), _pixels(new)
    except (UnidentifiedImageError, OSError):  # a damaged file
        return False
    if max(abs(m - n) for m, n in zip(a.shape, b.shape)) > 1:  # the margin of a figure may be rounded, too
        return False
    height, width, _ = np.minimum(a.shape, b.shape)
    a, b = a[:height, :width], b[:height, :width]
    return bool(_found_nearby(a, b).all() and _found_nearby(b, a).all())


def _found_nearby(a, b):
    """Whether each pixel of `a` has a colour between those that `b` has around it."""
    low = minimum_filter(b, (3, 3, 1)) - COLOUR_TOLERANCE
    high = maximum_filter(b, (3, 3, 1)) + COLOUR_TOLERANCE
    return (low <= a) & (a <= high)


def _pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"), dtype=np.int16)


def pass_behind(positions, edges):
    """Which edges, drawn as straight lines, pass behind a node that is no end of theirs: (E,) bool.

    positions : {node: (x, y)}; edges : list of pairs of nodes. Of more than 1,000 nodes none does.
    """
    hidden = np.zeros(len(edges), bool)
    if len(positions) > MANY_NODES:
        return hidden
    places = np.array(list(positions.values()), float)
    places = places / np.maximum(np.ptp(places, axis=0), 1e-9)
    index = {node: k for k, node in enumerate(positions)}
    for k, (u, v) in enumerate(edges):
        i, j = index[u], index[v]
        along = places[j] - places[i]
        others = np.delete(places, [i, j], axis=0) - places[i]
        length = max(np.hypot(*along), 1e-9)
        part = others @ along / length**2
        away = np.abs(others @ (along[1], -along[0])) / length
        hidden[k] = ((part > 0) & (part < 1) & (away < NEAR)).any()
    return hidden
