import numpy as np
import pytest
import torch
from PIL import Image
from videos import number_in, pictures, write_video

from lastseen.box import Box
from lastseen.errors import QueryError
from lastseen.query import LEAST_SIDE_PX, Query, View, cut_around
from lastseen.video import Video


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "keys.png"
    Image.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(path)
    return path


def test_a_picture_alone_is_the_thing_from_edge_to_edge(picture):
    view = Query.from_image(picture).views[0]
    assert view.box == Box(0, 0, 60, 40)
    assert view.crop.shape == (40, 60, 3)


def test_a_box_says_where_the_thing_is_and_the_rest_is_kept(picture):
    view = Query.from_image(picture, Box(10, 5, 30, 25)).views[0]
    assert view.picture.shape == (40, 60, 3)
    assert view.crop.shape == (20, 20, 3)


def test_several_pictures_are_one_query(picture):
    query = Query.from_images([picture, picture], asked_at=3.0)
    assert len(query.views) == 2
    assert query.asked_at == 3.0


def test_a_mask_has_the_size_of_its_picture():
    picture, box = np.zeros((40, 60, 3), np.uint8), Box(0, 0, 10, 10)
    assert Query((View(picture, box, np.ones((40, 60), bool)),)).views[0].mask.all()
    for wrong in (np.ones((60, 40), bool), np.ones((40, 60), np.uint8)):
        with pytest.raises(QueryError, match=r"a mask is \[h, w\] bool, 40x60 like its picture"):
            Query((View(picture, box, wrong),))


def test_a_query_can_be_a_moment_of_a_video(tmp_path):
    video = Video(write_video(tmp_path / "v.mp4", pictures(25)))
    query = Query.from_video(video, 0.4, Box(0, 0, 32, 32), asked_at=1.0)
    by_name = Query.from_video(video.path, 0.4, (0, 0, 32, 32))
    assert np.array_equal(by_name.views[0].picture, query.views[0].picture)
    assert number_in(query.views[0].picture) == number_in(video.frame_at(0.4).image)
    with pytest.raises(QueryError, match="no frame at 99 s"):
        Query.from_video(video, 99, Box(0, 0, 32, 32))


def test_the_cameras_orientation_is_applied(tmp_path):
    image = Image.new("RGB", (60, 40))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert Query.from_image(tmp_path / "turned.jpg").views[0].picture.shape == (60, 40, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "CMYK", "I;16", "1"])
def test_any_kind_of_picture_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("p.tif" if mode in ("CMYK", "I;16") else "p.png")
    Image.new(mode, (20, 10)).save(path)
    picture = Query.from_image(path).views[0].picture
    assert picture.shape == (10, 20, 3)
    assert picture.dtype == np.uint8


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (Box(0, 0, 61, 40), "reaches outside the 60x40 picture"),
        (Box(-1, 0, 10, 10), "reaches outside"),
        (Box(10, 10, 10, 20), "is empty"),
        (Box(30, 10, 10, 20), "is empty"),
        (Box(5, 5, 6, 6), "under 2 pixels"),
        (Box(float("nan"), 0, 10, 10), "not four numbers"),
    ],
)
def test_a_bad_box_is_one_clear_line_with_the_files_name(picture, box, message):
    with pytest.raises(QueryError, match=message) as caught:
        Query.from_image(picture, box)
    assert str(picture) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_picture_of_one_pixel_is_refused(tmp_path):
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    with pytest.raises(QueryError, match="1x1 pixels"):
        Query.from_image(tmp_path / "dot.png")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jpg", None, "no such picture"),
        ("empty.jpg", b"", "not a picture"),
        ("text.jpg", b"hello", "not a picture"),
        ("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0", "cannot be read|not a picture"),
    ],
)
def test_a_file_that_is_no_picture_is_one_clear_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(QueryError, match=message) as caught:
        Query.from_image(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_picture(tmp_path):
    with pytest.raises(QueryError, match="is a folder"):
        Query.from_image(tmp_path)


def test_a_query_needs_a_picture():
    with pytest.raises(QueryError, match="at least one picture"):
        Query.from_images([])
    with pytest.raises(QueryError, match="uint8"):
        Query.from_array(np.zeros((10, 10, 3)))


def numbered(height=40, width=60):
    """Every pixel is different."""
    return np.arange(height * width * 3).reshape(height, width, 3)


def test_a_picture_is_cut_around_a_box_with_a_margin_of_its_longer_side():
    part, box = cut_around(numbered(), Box(20, 10, 30, 15), 0.5)
    assert np.array_equal(part, numbered()[5:20, 15:35])
    assert box == Box(5, 5, 15, 10)


def test_a_cut_ends_at_the_pictures_edges_and_the_box_shows_the_same_pixels():
    for x1, y1, x2, y2 in ((0, 0, 10, 8), (50, 30, 60, 40), (2, 28, 12, 39)):
        part, box = cut_around(numbered(), Box(x1, y1, x2, y2), 0.4)
        a, b, c, d = map(int, box.xyxy)
        assert np.array_equal(part[b:d, a:c], numbered()[y1:y2, x1:x2])
        assert part.size < numbered().size


def test_without_a_margin_all_of_the_cut_is_the_thing():
    part, box = cut_around(numbered(), Box(20.4, 10.6, 29.2, 14.1), 0.0)
    assert np.array_equal(part, numbered()[10:15, 20:30])
    assert box == Box(0, 0, 10, 5)


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_a_cut_is_never_smaller_than_a_query_may_be(margin):
    """Also at the last pixels, and of a box that reaches beyond them."""
    for x1, y1 in ((0, 0), (59.5, 39.5), (59.5, 20), (60, 40), (-3, -3)):
        part, box = cut_around(numbered(), Box(x1, y1, x1 + 0.3, y1 + 0.3), margin)
        assert min(part.shape[:2]) == LEAST_SIDE_PX
        if not margin:
            assert Query.from_array(part.astype(np.uint8), box)


def test_tensors_are_cut_as_arrays_are():
    for margin in (0.0, 0.4):
        array, box = cut_around(numbered(), Box(20, 10, 30, 15), margin)
        tensor, same = cut_around(torch.from_numpy(numbered()), Box(20, 10, 30, 15), margin)
        assert np.array_equal(tensor.numpy(), array) and same == box


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_a_video_where_a_picture_is_expected_is_said_to_be_one(tmp_path, ending):
    path = write_video(tmp_path / f"walk.{ending}", pictures(3))
    with pytest.raises(QueryError, match=rf"walk.{ending} is a video, not a picture"):
        Query.from_image(path)


def test_a_box_may_be_four_numbers():
    picture = np.zeros((60, 80, 3), np.uint8)
    for box in ((1, 2, 30, 40), [1, 2, 30, 40], np.array([1, 2, 30, 40]), Box(1, 2, 30, 40)):
        assert Query.from_array(picture, box).views[0].box == Box(1, 2, 30, 40)
    for wrong in ((1, 2, 3), (1, 2, 3, 4, 5), "1,2,3,4", 7, (1, 2, None, 4)):
        with pytest.raises(QueryError, match="a box is four numbers x1, y1, x2, y2 in pixels, got") as said:
            Query.from_array(picture, wrong)
        assert "\n" not in str(said.value)
