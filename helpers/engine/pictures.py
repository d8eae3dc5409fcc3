"""Whether two pictures show the same, although another machine drew them."""

import io

import numpy as np
from PIL import Image, UnidentifiedImageError
from scipy.ndimage import maximum_filter, minimum_filter

COLOUR_TOLERANCE = 8  # of 255


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
