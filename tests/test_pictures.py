import io

import numpy as np
from PIL import Image

from helpers.engine.pictures import looks_alike, pass_behind


def png(pixels):
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(buffer := io.BytesIO(), "png")
    return buffer.getvalue()


def grey(height=40, width=60):
    picture = np.full((height, width, 3), 200)
    picture[10:20, 10:20] = 100
    return picture


def test_pictures_are_alike_up_to_a_pixel_and_a_shade():
    old = png(grey())
    assert looks_alike(old, old)
    for shift in ((0, 1), (1, 0), (-1, -1)):
        assert looks_alike(old, png(np.roll(grey(), shift, (0, 1))))
    assert looks_alike(old, png(grey() + 8))
    assert looks_alike(old, png(grey() - 8))
    assert looks_alike(old, png(grey(41, 59)))


def test_pictures_differ_by_two_pixels_a_visible_shade_a_dot_or_their_size():
    old = png(grey())
    for shift in ((0, 2), (2, 0), (-2, 0), (0, -2)):
        assert not looks_alike(old, png(np.roll(grey(), shift, (0, 1))))
    assert not looks_alike(old, png(grey() + 9))
    assert not looks_alike(old, png(grey() - 9))
    dot = grey()
    dot[30, 30, 1] = 100
    assert not looks_alike(old, png(dot))
    assert not looks_alike(png(dot), old)
    for size in ((42, 60), (40, 58)):
        assert not looks_alike(old, png(grey(*size)))
    assert not looks_alike(b"no picture", old)
    assert not looks_alike(old[:100], old)
    opaque, clear = (np.concatenate([grey(), np.full((40, 60, 1), alpha)], 2) for alpha in (255, 100))
    assert looks_alike(old, png(opaque))
    assert not looks_alike(old, png(clear))


def test_an_edge_passes_behind_a_node_on_its_way():
    edges = [("a", "c"), ("c", "a"), ("a", "b"), ("a", "d")]
    places = {"a": (0, 0), "b": (10, 1), "c": (20, 2), "d": (10, 50)}
    assert pass_behind(places, edges).tolist() == [True, True, False, False]
    assert not pass_behind(places | {"b": (10, 1.7)}, edges).any()  # 0.014 of the height of the picture away
    assert pass_behind(places | {"b": (10, 1.3)}, edges).tolist() == [True, True, False, False]
    assert not pass_behind(places | {"b": (30, 3)}, edges)[:2].any()  # on the line, but beyond its end
    assert pass_behind(places | {"b": (30, 3)}, edges)[2]
    assert not pass_behind({"a": (1, 1), "b": (1, 1)}, [("a", "b")]).any()
    many = places | {str(k): (k, -1) for k in range(997)}
    assert not pass_behind(many, edges).any()
